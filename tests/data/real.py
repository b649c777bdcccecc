"""Real data beside the repository, which is no part of it."""

import os
from pathlib import Path

import pytest

SHARED = (
    Path(os.environ.get("HOLDFAST_SHARED", Path(__file__).resolve().parents[3] / "shared")) / "data"
)


def needs(name):
    """Skip a test where the real files are not there."""
    return pytest.mark.skipif(
        not (SHARED / name).exists(), reason=f"{name} is not in ../shared/data on this machine"
    )
