"""What runs guarantee to a client, for whoever has to sign it."""

from typing import Any

from holdfast.runs.results import MethodResult, Results

Cell = dict[str, Any]
COLUMNS = ("protects", "epsilon", "delta", "over", "noise multiplier", "clip", "noise", "account")


def privacy(results: Results) -> dict[str, Any] | None:
    """The guarantees of methods that have one, row by row; None where no run is private.

    Runs of a method may have spent different budgets: the table has the largest, words are of each.
    """
    found = [_guarantees(method) for method in results.methods]
    if not any(found):
        return None
    return {
        "columns": list(COLUMNS),
        "rows": [_row(max(told, key=_epsilon)) if told else None for told in found],
        "words": _words(found),
    }


def _words(found: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """What is guaranteed, and by which methods, by their numbers; what is the same is said once."""
    said: dict[str, list[int]] = {}
    for method, guarantees in enumerate(found):
        for text in dict.fromkeys(f"{told['sentence']} {_noise(told)}" for told in guarantees):
            said.setdefault(text, []).append(method)
    return [{"text": text, "methods": methods} for text, methods in said.items()]


def _guarantees(method: MethodResult) -> list[dict[str, Any]]:
    return [told for files in method.files if (told := files.privacy())]


def _epsilon(told: dict[str, Any]) -> float:
    return float(told["epsilon"])


def _row(told: dict[str, Any]) -> list[Cell]:
    counted = {"local": "replies of a client", "example": "passes"}.get(told["cohort"], "rounds")
    noise, what = _size(told)
    return [
        {"text": f"each {told['unit']}", "value": told["unit"]},
        _figure(told["epsilon"]),
        _figure(told["delta"]),
        {"text": f"{told['rounds']} {counted}", "value": told["rounds"]},
        _figure(told["noise_multiplier"]),
        _figure(told["clip"]),
        _figure(noise) | {"title": what},
        {"text": told["accountant"].upper(), "value": told["accountant"]},
    ]


def _figure(value: float) -> Cell:
    return {"text": f"{value:.4g}", "value": value}


def _size(told: dict[str, Any]) -> tuple[float, str]:
    """The standard deviation of the noise, and in what."""
    if told.get("noise_in_reply") is not None:
        return told["noise_in_reply"], "in every number of every reply"
    if told.get("noise_in_step") is not None:
        return told["noise_in_step"], "in every number of the gradient of a local step"
    return told["noise_in_mean"], "in every number of a round's mean"


def _noise(told: dict[str, Any]) -> str:
    """The noise it took."""
    noise, what = _size(told)
    over = {
        "local": "",
        "example": ", over a whole batch",
    }.get(told["cohort"], f", over {told['clients_expected']:g} expected clients")
    return (
        f"It took noise of {noise:.3g} {what}: {told['noise_multiplier']:g} times the clip of "
        f"{told['clip']:g}{over} (by {told['accountant'].upper()})."
    )
