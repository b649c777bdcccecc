"""FLIX, figures 11 and 12: DIANA without a penalty, seven values of k, beside gradient descent."""

from papers.flix.curves import DIANA
from papers.flix.unregularised import study

STUDY = study(
    "flix/figure11",
    "DIANA without a penalty, seven values of k, beside gradient descent",
    DIANA,
    100,
    ("figure 11", "figure 12"),
    1,
)
