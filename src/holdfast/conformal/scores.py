r"""How badly a label, or a number, fits what a model predicts: the scores that everything else rests on."""

import dataclasses
from hashlib import blake2b
from typing import Any, Literal, get_args

import numpy as np

from holdfast.core.keys import Purpose, host_generator
from holdfast.errors import HoldfastError, did_you_mean, explain_constructor, whole_number

ScoreName = Literal["lac", "aps", "raps", "residual"]
# Randomised scores of rows to calibrate with and of new rows are drawn apart.
CALIBRATING, NEW = 0, 1


@explain_constructor
@dataclasses.dataclass(frozen=True)
class Score:
    r"""A score of every label of a row, the larger the worse: one of three for classes, one for numbers.

    $$ \text{lac: } 1 - p_y \qquad \text{aps: } \sum_{j:\, p_j > p_y} p_j + u\, p_y \qquad
       \text{raps: } \text{aps} + \lambda\, (\operatorname{rank}(y) - k_{reg})^+ \qquad
       \text{residual: } |y - \hat y| $$

    `lac` gives the smallest sets on average; `aps` lets hard rows have large sets and easy ones small; `raps`
    is the same with a penalty on labels far down the ranking, so that no set gets very large. Ranks count
    from 1, and of two labels that are as probable the first comes first.

    Args:
        name: which one.
        penalty: of `raps`, $\lambda$.
        k_reg: of `raps`, how many of the most probable labels cost no penalty.
        randomised: of `aps` and `raps`, whether $u$ is drawn uniformly from $[0, 1]$ for every row, as in the
            papers, so that coverage is as asked and not more. Without, $u = 0$: the most probable label is in
            every set, and coverage may be higher.
        seed: the draws are a function of it, of the client and of the row's place among its rows.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> probabilities = np.array([[0.5, 0.25, 0.25]])
        >>> hf.conformal.Score("lac").of_all(probabilities).tolist()
        [[0.5, 0.75, 0.75]]
        >>> hf.conformal.Score("aps", randomised=False).of_all(probabilities).tolist()
        [[0.0, 0.5, 0.75]]
        >>> hf.conformal.Score("raps", penalty=0.1, k_reg=1, randomised=False).of_all(probabilities).round(2)
        array([[0.  , 0.6 , 0.95]])

    Reference:
        Sadinle et al. 2019 (lac); Romano et al. 2020, arXiv:2006.02544 (aps); Angelopoulos et al. 2021,
        arXiv:2009.14193 (raps).
    """

    name: ScoreName = "lac"
    penalty: float = 0.01
    k_reg: int = 5
    randomised: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if self.name not in get_args(ScoreName):
            raise HoldfastError(
                f"conformal: score `{self.name}`; {did_you_mean(str(self.name), get_args(ScoreName))}",
                about=("score",),
            )
        if not np.isfinite(self.penalty) or self.penalty < 0:
            raise HoldfastError(
                f"conformal: penalty={self.penalty}; give a number of at least 0, such as 0.01.",
                about=("penalty",),
            )
        whole_number("conformal", "k_reg", self.k_reg, least=0)
        whole_number("conformal", "seed", self.seed, least=0)

    @property
    def of_numbers(self) -> bool:
        """Whether it is of a regression's numbers, not of labels."""
        return self.name == "residual"

    def of_all(self, probabilities: Any, client: int = 0, rows: int = NEW) -> np.ndarray:
        """The score of every label of every row, a column for each label.

        Args:
            probabilities: of labels, a row for each example; or of label 1 alone, where there are two.
            client: whose rows they are, by number.
            rows: whether they are new ones, or `CALIBRATING`; random numbers of the two are drawn apart.
        """
        self._refuse_numbers()
        p = as_probabilities(probabilities)
        if self.name == "lac":
            return 1 - p
        order = np.argsort(-p, axis=1, kind="stable")
        ranked = np.take_along_axis(p, order, axis=1)
        above = np.cumsum(ranked, axis=1) - ranked
        found = above + self._draws(p, client, rows)[:, None] * ranked
        if self.name == "raps":
            ranks = np.arange(1, p.shape[1] + 1)
            found = found + self.penalty * np.maximum(0, ranks - self.k_reg)
        out = np.empty_like(found)
        np.put_along_axis(out, order, found, axis=1)
        return out

    def of_truth(self, predicted: Any, truth: Any, client: int = 0) -> np.ndarray:
        """The score of what was to be predicted, of every row to calibrate with.

        Args:
            predicted: probabilities, as of `of_all`; or numbers, for `residual`.
            truth: the label of each row, from 0; or its number.
            client: whose rows they are.
        """
        if self.of_numbers:
            numbers, wanted = as_numbers(predicted, "predictions"), as_numbers(truth, "labels")
            if len(numbers) != len(wanted):
                raise _unequal(len(wanted), len(numbers))
            return np.abs(wanted - numbers)
        found = self.of_all(predicted, client, CALIBRATING)
        return own(found, as_labels(truth, found))

    def largest(self, classes: int) -> float | None:
        """What no score of so many classes exceeds, but for rounding; None of numbers."""
        if self.of_numbers:
            return None
        beyond = self.penalty * max(0, classes - self.k_reg) if self.name == "raps" else 0.0
        return 1.0 + beyond

    def _draws(self, p: np.ndarray, client: int, rows: int) -> np.ndarray:
        if not self.randomised:
            return np.zeros(len(p))
        if rows == CALIBRATING:
            return host_generator(Purpose.SETS, self.seed, rows, client).random(len(p))
        # By what is predicted, not by its place: rows that are asked about one at a time must not all have
        # the same number, or coverage would be that of this number. Rounded, as batches of other sizes
        # round differently.
        key = self.seed.to_bytes(8, "big") + client.to_bytes(8, "big")
        drawn = (blake2b(row.tobytes(), digest_size=8, key=key) for row in np.round(p, 6) + 0.0)
        return np.array([int.from_bytes(d.digest(), "big") / 2**64 for d in drawn])

    def _refuse_numbers(self) -> None:
        if self.of_numbers:
            raise HoldfastError(
                "conformal: score `residual` is of numbers, which have intervals and no sets; use "
                "intervals, or score `lac`, `aps` or `raps` of probabilities.",
                about=("score",),
            )


def as_score(given: "Score | str") -> Score:
    """A score by its name, or as it is."""
    return given if isinstance(given, Score) else Score(given)  # type: ignore[arg-type]


def own(found: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Of each row the score of its own label."""
    return np.take_along_axis(found, labels[:, None], axis=1)[:, 0]


def as_probabilities(given: Any) -> np.ndarray:
    """Probabilities in 64 bits, a column for each label; of label 1 alone, of both."""
    p = np.asarray(given, np.float64)
    if p.ndim == 1:
        p = np.stack([1 - p, p], axis=-1)
    if p.ndim != 2 or p.shape[1] < 2:
        raise HoldfastError(
            f"conformal: probabilities of shape {np.shape(given)}; give a row for each example and a column "
            f"for each label.",
            about=("probabilities",),
        )
    # As far as 32 bits can say it.
    if not (np.isfinite(p).all() and (p >= -1e-5).all() and (p <= 1 + 1e-5).all()):
        raise HoldfastError(
            "conformal: probabilities hold values outside 0 to 1; give those of a model that predicts "
            "labels, or score `residual` for numbers.",
            about=("probabilities",),
        )
    return p


def as_numbers(given: Any, what: str) -> np.ndarray:
    """One finite number for each row, in 64 bits."""
    found = np.asarray(given)
    if found.ndim != 1 or found.dtype.kind not in "biuf" or not np.isfinite(found).all():
        raise HoldfastError(
            f"conformal: {what} of shape {found.shape} and type {found.dtype}; give one finite number for "
            f"each row.",
            about=(what,),
        )
    return found.astype(np.float64)


def as_labels(given: Any, found: np.ndarray) -> np.ndarray:
    """Labels as whole numbers, one for each row of scores and among their columns."""
    labels = np.asarray(given)
    whole = labels.dtype.kind in "biu" or (
        labels.dtype.kind == "f" and bool((labels == np.floor(labels)).all())
    )
    if labels.ndim != 1 or not whole:
        raise HoldfastError(
            f"conformal: labels of shape {labels.shape} and type {labels.dtype}; give one whole number for "
            f"each row.",
            about=("labels",),
        )
    if len(labels) != len(found):
        raise _unequal(len(labels), len(found))
    labels = labels.astype(np.int64)
    wrong = labels[(labels < 0) | (labels >= found.shape[1])]
    if len(wrong):
        raise HoldfastError(
            f"conformal: label {wrong[0]}, and there are probabilities of 0 to {found.shape[1] - 1}; give "
            f"labels that the model predicts.",
            about=("labels",),
        )
    return labels


def _unequal(labels: int, rows: int) -> HoldfastError:
    return HoldfastError(
        f"conformal: {labels} labels for {rows} rows; give one for each.", about=("labels",)
    )
