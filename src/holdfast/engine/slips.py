"""What somebody who gives something else is likely to mean."""

from typing import Any

import numpy as np

from holdfast.data.clients import Clients, Examples
from holdfast.data.dataset import Dataset


def meant(name: str, value: Any) -> str | None:
    """Of an argument of an experiment: what to give for it; None if nobody knows."""
    if name == "cohort" and isinstance(value, int | np.integer) and value > 0:
        return f"{value} clients in a round are cohort=hf.cohorts.fixed({value})"
    if name == "cohort" and isinstance(value, float) and 0 < value <= 1:
        return (
            f"each client with this probability is cohort=hf.cohorts.bernoulli({value:g}), and a number of "
            f"them hf.cohorts.fixed(...)"
        )
    if name != "evaluate":
        return None
    if isinstance(value, Clients):
        return "to measure each client on examples of its own give evaluate=hf.evaluate.personal(tests)"
    if isinstance(value, Dataset):
        return "to measure on its test examples give evaluate=hf.evaluate.on(data.test)"
    if isinstance(value, Examples | dict) or hasattr(value, "shape"):
        return "to measure on examples give evaluate=hf.evaluate.on(test)"
    return None
