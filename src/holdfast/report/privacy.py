"""What runs guarantee to a client, for whoever has to sign it."""

from collections.abc import Iterator
from typing import Any

from holdfast.report.appearance import PLAIN, Appearance
from holdfast.report.setting import Fact
from holdfast.runs.folder import RunFolder
from holdfast.runs.results import Results


def guarantees(
    results: Results, folder: RunFolder, appearance: Appearance = PLAIN
) -> Iterator[Fact]:
    """Of runs of a folder that have ended, each in words and with the noise it took; equal ones once."""
    said = set()
    for method in results.methods:
        for files in method.files:
            told = files.privacy() if files.path.is_relative_to(folder.path) else {}
            text = told and f"{told['sentence']} {_noise(told)}"
            if text and (method.label, text) not in said:
                said.add((method.label, text))
                yield Fact(f"Privacy of {appearance.method(method)}", text)


def _noise(told: dict[str, Any]) -> str:
    """The noise it took."""
    if told.get("noise_in_reply") is not None:
        return (
            f"It took noise of {told['noise_in_reply']:.3g} in every number of every reply: "
            f"{told['noise_multiplier']:g} times the clip of {told['clip']:g} (by "
            f"{told['accountant'].upper()})."
        )
    if told.get("noise_in_step") is not None:
        return (
            f"It took noise of {told['noise_in_step']:.3g} in every number of the gradient of a local step: "
            f"{told['noise_multiplier']:g} times the clip of {told['clip']:g}, over a whole batch (by "
            f"{told['accountant'].upper()})."
        )
    return (
        f"It took noise of {told['noise_in_mean']:.3g} in every number of a round's mean: "
        f"{told['noise_multiplier']:g} times the clip of {told['clip']:g}, over "
        f"{told['clients_expected']:g} expected clients (by {told['accountant'].upper()})."
    )
