"""A run elsewhere, as it is shown while it goes on: bars in a terminal, else a line for every round."""

from collections.abc import Iterable
from typing import Any

from holdfast.cli.console import err, out

# The first of these that sites or server measure is shown beside the bar.
_METRICS = ("personal_accuracy", "accuracy", "personal_loss", "loss")


def line(words: str) -> None:
    """A line as it is, however long."""
    out.print(words.rstrip(), markup=False, highlight=False, soft_wrap=True)


def show(lines: Iterable[str], name: str, rounds: int) -> None:
    """The rounds of a run while it goes on: bars in a terminal, in a pipe a line each; and what is wrong.

    What Flower says of itself is left out.
    """
    # Its module imports JAX, which help and names do without.
    from holdfast.record.progress import of_command

    total, record = 0.0, dict[str, Any]()
    with of_command(err, 1, rounds, *_METRICS) as progress:
        progress.begin(name, "waiting for sites")
        for said in lines:
            figures = of_round(said)
            if figures:
                record = figures
                total += figures.get("bytes_down", 0.0) + figures.get("bytes_up", 0.0)
                if progress.is_shown:
                    # One metric has room beside a bar.
                    shown = {m: record[m] for m in _METRICS if m in record}
                    progress.hear(name, int(record["round"]), dict([*shown.items()][:1]), total)
                else:
                    line(said.removeprefix("holdfast "))
            elif said.startswith(("round ", "deploy: ", "holdfast: ")):
                err.print(said, markup=False, highlight=False, soft_wrap=True)
        last = "  ".join(f"{m} {record[m]:.3f}" for m in _METRICS if m in record)
        progress.end(f"{int(record.get('round', rounds))} rounds  {last}".rstrip())


def of_round(said: str) -> dict[str, float]:
    """The figures of a round, if a server's line has them; nothing if it is another line."""
    words = said.split()
    if words[:1] != ["holdfast"] or not words[1:] or not words[1].startswith("round="):
        return {}
    found = dict[str, float]()
    for word in words[1:]:
        name, _, value = word.partition("=")
        try:
            found[name] = float(value)
        except ValueError:
            continue
    return found if "round" in found else {}
