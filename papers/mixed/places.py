"""Tables and figures of the paper on mixed federated learning that no study has, or has on other data."""

from papers.study import Place

FACES = "CelebA is not at hand; the study mixed/imbalance has it on other faces."
POSTS = (
    "Stack Overflow and the whole of Wikipedia are not at hand, and a GRU of width 1,024 takes weeks on a "
    "CPU; the study mixed/text has it on smaller text with a smaller model."
)
SMILE = "holdfast run papers/mixed/smile.toml"
# One step a round, and eq. 7 measured.
APART = (
    "--set local.steps=1 --set server.local.steps=1 "
    """--set 'evaluate.also=[{ name = "dissimilarity", clients = 100 }]'"""
)
TEXT = "holdfast run papers/mixed/text.toml"


def _smile(place: str, what: str, paper: str, hours: float, more: str = "") -> Place:
    return Place(place, f"CelebA: {what}", paper, f"{SMILE} {more}".strip(), hours, FACES)


def _text(place: str, what: str, paper: str, hours: float, more: str = "") -> Place:
    what = f"Stack Overflow and Wikipedia: {what}"
    return Place(place, what, paper, f"{TEXT} {more}".strip(), hours, POSTS)


NOTHING = "nothing is measured in it: "
SETTINGS = f"{NOTHING}the experiment file has these settings."
MOVIES = "holdfast run papers/mixed/movielens.toml"

PLACES: tuple[Place, ...] = (
    Place(
        "table 1",
        "the three experiments: models, losses, data and weights",
        "weights 0.5 and 0.5, language model 0.75 and 0.25",
        MOVIES,
        0.5,
        f"{NOTHING}smile.toml, text.toml and movielens.toml have these settings.",
    ),
    Place(
        "table 5",
        "smile classifier, federated hyper-parameters",
        "100 clients, batch 5, 2 steps of 0.01",
        SMILE,
        1,
        SETTINGS,
    ),
    Place(
        "table 6",
        "smile classifier, central hyper-parameters",
        "batch 1,000 for 1-way, 500 for parallel and 2-way, 2 steps, weights 0.5",
        SMILE,
        1,
        SETTINGS,
    ),
    Place(
        "table 7",
        "language model, federated hyper-parameters",
        "100 clients, batch 8, 16 steps of 2.0, of 1.0 for 2-way",
        TEXT,
        5000,
        SETTINGS,
    ),
    Place(
        "table 8",
        "language model, central hyper-parameters",
        "batch 6,400 for 1-way, 800 for parallel and 2-way, 16 steps, weights 0.75 and 0.25",
        TEXT,
        5000,
        SETTINGS,
    ),
    Place(
        "table 9",
        "movie recommender, federated hyper-parameters",
        "100 clients, batch 16, 10 steps of 0.5",
        MOVIES,
        0.5,
        SETTINGS,
    ),
    Place(
        "table 10",
        "movie recommender, central hyper-parameters",
        "10 steps, weights 0.5",
        MOVIES,
        0.5,
        SETTINGS,
    ),
    Place(
        "table 13",
        "what the convergence bounds assume of step sizes of merging and of the server",
        "parallel and 2-way: merging at least 1; 1-way: server at least the root of S",
        "holdfast papers run mixed/dissimilarity",
        0.1,
        f"{NOTHING}the paper's own experiments have 1 for both, and so have these.",
    ),
    _smile("figure 1", "AUC by round", "over 0.95, as the oracle", 1),
    _smile("figure 2", "loss by round", "parallel training worse than transfer", 1),
    _smile("figure 4", "G̃² and B̃² by round", "maxima 49.04 and 1.26", 1, APART),
    _smile("table 4", "largest G̃² and B̃²", "49.04 and 1.26", 1, APART),
    _smile(
        "figure 7",
        "1-way transfer, central batches",
        "above 25 hardly faster",
        3,
        "--set server.gradient_batch_size=25",
    ),
    _smile(
        "figure 8",
        "2-way transfer, central batches",
        "less sensitive than 1-way",
        3,
        "--set server.local.batch_size=25",
    ),
    _smile(
        "figure 9",
        "K steps of 0.02 / K",
        "more and smaller steps never hurt",
        3,
        "--set local.steps=4 --set local.learning_rate=0.005 --set server.local.steps=4 "
        "--set server.local.learning_rate=0.005",
    ),
    _text("figure 1", "accuracy by round", "0.66, federated only 0.60", 5000),
    _text("figure 2", "loss by round", "all three the same", 5000),
    _text(
        "figure 4", "G̃² and B̃² by round", "maxima 0.03 and 1.34", 30, f"--set rounds=100 {APART}"
    ),
    _text("table 4", "largest G̃² and B̃²", "0.03 and 1.34", 30, f"--set rounds=100 {APART}"),
    _text("figure 5", "accuracy on each source", "federated only is poor on Wikipedia", 5000),
    _text(
        "figure 10",
        "more and smaller steps",
        "they never hurt, and often help",
        15000,
        "--set local.steps=32 --set local.learning_rate=1.0 --set server.local.steps=32 "
        "--set server.local.learning_rate=1.0",
    ),
    _text(
        "figure 11",
        "step size 3 for parallel training and 1-way transfer",
        "a little faster early, the same at the end",
        5000,
        "--set local.learning_rate=3.0 --set server.local.learning_rate=3.0",
    ),
    _text(
        "figure 13",
        "transfer learning, switched after 250 rounds",
        "what was learned first is forgotten",
        800,
        "--set rounds=500",
    ),
)
