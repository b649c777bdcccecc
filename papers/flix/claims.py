"""What the paper says of a figure in words, and whether it is so here: the rule of every verdict of FLIX.

A row agrees if all that is claimed holds. Where it holds on other data than the paper's, the order agrees.
"""

from collections.abc import Mapping

from papers.study import Verdict

Claims = Mapping[str, bool]  # what is claimed, in words, and whether it holds


def verdict(claims: Claims, elsewhere: bool = False) -> Verdict:
    """Of what was measured; `elsewhere` on other data, or much smaller."""
    if not claims:
        return Verdict.NOT_RUN
    if not all(claims.values()):
        return Verdict.DISAGREES
    return Verdict.ORDER if elsewhere else Verdict.AGREES


def broken(claims: Claims) -> str:
    """What does not hold, in words; and what does, if only a part does not."""
    wrong = [words for words, holds in claims.items() if not holds]
    right = [words for words, holds in claims.items() if holds]
    if not wrong:
        return ""
    said = f"Does not hold: {'; '.join(wrong)}."
    return f"{said} Holds: {'; '.join(right)}." if right else said
