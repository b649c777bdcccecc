"""FLIX, figures 13 and 14: DCGD without a penalty, seven values of k, beside gradient descent."""

from papers.flix.curves import DCGD
from papers.flix.unregularised import study

STUDY = study(
    "flix/figure13",
    "DCGD without a penalty, seven values of k, beside gradient descent",
    DCGD,
    8,
    ("figure 13", "figure 14"),
    1,
)
