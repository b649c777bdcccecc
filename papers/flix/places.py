"""Tables and figures of the FLIX paper, or parts of them, without a study: their data are not at hand."""

from papers.study import Place

POSTS = "Stack Overflow's posts are not at hand (the loader says where); figure 1's study has other data."
WORKERS = (
    """--set 'data.users=["00000267", "00000459"]' --set data.max_examples=500 """
    """--set 'partition={ name = "in_order", clients = 100 }' --set rounds=10000 """
)
RATES = "--set 'sweep.local.learning_rate=[5e-2, 5e-1, 5.0, 5e1, 5e2, 5e3, 5e4, 5e5, 5e6]'"
PAPERS_POSTS = "holdfast run papers/flix/stack_overflow.toml"
LARGER = "the smaller alpha, the larger the best step size"
NO_NUMBERS = (
    "a bound on gradients of a non-convex objective, by constants that are not known there: no number to "
    "compare with. Its rows for convex losses are in the studies of figures 7 to 13."
)

PLACES: tuple[Place, ...] = (
    Place(
        "table 1",
        "DCGD, smooth alone: the least gradient is at most alpha^2 (1 + C_1 gamma_0^2)^k C_2 / (gamma_0 k)",
        "the guarantee",
        """holdfast run papers/flix/sine.toml --set local.steps=1 --set 'algorithm.flix.by="""
        """{ name = "dcgd", compressor = { name = "RandK", share = 0.1 } }'""",
        0.1,
        NO_NUMBERS,
    ),
    Place(
        "table 1",
        "DIANA, smooth alone: the mean gradient is at most C alpha^2 / k",
        "the guarantee",
        """holdfast run papers/flix/sine.toml --set local.steps=1 --set 'algorithm.flix.by="""
        """{ name = "diana", compressor = { name = "RandK", share = 0.1 } }'""",
        0.1,
        NO_NUMBERS,
    ),
    Place(
        "figure 1, a",
        "Stack Overflow, two users' posts divided among 100 workers: recall@5",
        "alpha from 0.2 to 0.8 better than FOMAML and Reptile, by up to 11 %",
        f"{PAPERS_POSTS} {WORKERS}".strip(),
        30,
        POSTS,
    ),
    Place(
        "figure 1, b",
        "Stack Overflow, 50 users: recall@5",
        "better than FOMAML and Reptile, best strictly between the ends",
        PAPERS_POSTS,
        60,
        POSTS,
    ),
    Place(
        "figures 2, 3 and 7 to 14",
        "w6a, one of four data sets: gradient descent, DIANA and DCGD",
        "as on the other data sets",
        """holdfast run papers/flix/mushrooms.toml --set 'data.which="w6a"'""",
        0.1,
        "w6a is not at hand; the studies have a9a in its place.",
    ),
    Place(
        "figure 5",
        "Stack Overflow, two users' posts divided among 100 workers: step sizes by validation loss",
        LARGER,
        f"{PAPERS_POSTS} {WORKERS}{RATES}",
        100,
        POSTS,
    ),
    Place(
        "figure 6",
        "Stack Overflow, 50 users: step sizes by validation loss",
        LARGER,
        f"{PAPERS_POSTS} {RATES}",
        200,
        POSTS,
    ),
)
