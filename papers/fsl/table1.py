"""FSL, table I: four methods with and without server learning, 450 clients, on MNIST in place of EMNIST."""

from papers.fsl import runs
from papers.fsl.plus import Setting, study
from papers.fsl.runs import METHODS

ROUNDS = 200
# As many local steps at the server as at clients (15, which have 133 examples each): the paper's rule.
CHANGES = {**runs.ON_MNIST, "rounds": ROUNDS, "server.local.epochs": 3}
# By the name of the split.
CONCENTRATIONS = {"dirichlet01": 0.1, "dirichlet03": 0.3}
TITLES = {name: f"Dirichlet {value:g}" for name, value in CONCENTRATIONS.items()}
# Rounds to 80 % and 82 % and the accuracy after 400, in the order of `METHODS`; transcribed from table I.
PAPER = {
    "dirichlet01": (
        (134, 238, 83.11),
        (49, 91, 84.80),
        (187, 248, 82.86),
        (38, 65, 85.92),
        (97, 168, 84.08),
        (53, 88, 85.39),
        (85, 119, 85.34),
        (47, 74, 86.00),
    ),
    "dirichlet03": (
        (81, 139, 84.41),
        (35, 65, 85.51),
        (107, 162, 84.43),
        (34, 56, 86.20),
        (70, 101, 85.40),
        (43, 70, 85.89),
        (57, 81, 86.36),
        (42, 62, 86.50),
    ),
}
STUDY = study(
    "fsl/table1",
    "MNIST over 450 clients: rounds to two targets, with and without server learning",
    "mnist",
    "nothing: the paper's values for EMNIST are fixed (appendix C-A; alpha from the supplement).",
    [
        Setting(
            name,
            TITLES[name],
            "emnist",
            {**CHANGES, "partition.concentration": concentration},
            "EMNIST",
            ("80 %", "82 %"),
            dict(zip(METHODS, PAPER[name], strict=True)),
            (ROUNDS, 400),
            "MNIST in place of EMNIST, a perceptron (200, 100) in place of the convolutional network, 200 "
            "rounds in place of 400; 450 clients and 5 a round as in the paper",
            runs.MNIST,
            minutes=0.5,
        )
        for name, concentration in CONCENTRATIONS.items()
    ],
)
