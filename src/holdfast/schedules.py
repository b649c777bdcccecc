"""Step sizes and other numbers that change over rounds. Any optax schedule works too."""

from holdfast.core.hyper import Schedule, constant, cosine, exponential, multi_step

__all__ = ["Schedule", "constant", "cosine", "exponential", "multi_step"]
