"""What runs guarantee to a client, for whoever has to sign it."""

from collections.abc import Iterator

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
            text = told and (
                f"{told['sentence']} It took noise of {told['noise_in_mean']:.3g} in every number of a "
                f"round's mean: {told['noise_multiplier']:g} times the clip of {told['clip']:g}, over "
                f"{told['clients_expected']:g} expected clients (by {told['accountant'].upper()})."
            )
            if text and (method.label, text) not in said:
                said.add((method.label, text))
                yield Fact(f"Privacy of {appearance.method(method)}", text)
