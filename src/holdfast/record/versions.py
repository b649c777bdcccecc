"""What the bits of a run depend on besides its arguments: the versions of what computes it."""

import functools
import platform
from collections.abc import Mapping
from importlib import metadata

PACKAGES = ("holdfast", "jax", "jaxlib", "flax", "optax", "numpy", "scikit-learn")


@functools.cache
def versions() -> dict[str, str]:
    """Python and the packages that are installed; asked for at every save, so looked up once."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # used from its sources, or not needed by this run
            continue
    return found


def differences(then: Mapping[str, str], now: Mapping[str, str]) -> str:
    """What has another version, in words; empty if nothing has, or nothing is known of then."""
    names = [name for name in then if then[name] != now.get(name)]
    return ", ".join(f"{name} {then[name]} (now {now.get(name, 'absent')})" for name in names)
