"""Sites whose answer was lost are asked again at once: tests lose many, and nothing else is waited for."""

import pytest

from holdfast.deploy import roster


@pytest.fixture(autouse=True, scope="session")
def _no_pauses():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(roster, "_AFTER_FAILURE", 0.0)
        yield
