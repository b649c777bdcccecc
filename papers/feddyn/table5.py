"""FedDyn, table 5: MNIST over 100 devices, 1 % of them a round, three splits."""

from papers.feddyn.targets import Setting, study

MINUTES = (8.0, 8.0, 6.0, 6.0)
STUDY = study(
    "feddyn/table5",
    "MNIST, 100 devices, 1 % a round: models transmitted until a target accuracy",
    "nothing: hyper-parameters are those that the paper's search chose (A.2), which it prints.",
    [
        Setting(
            "one-dirichlet03",
            "MNIST, 1 %, Dirichlet 0.3",
            "mnist_1percent",
            {0.982: (521, 954, 951, 974), 0.972: (157, 318, 169, 177)},
            MINUTES,
            "table 5",
        ),
        Setting(
            "one-dirichlet06",
            "MNIST, 1 %, Dirichlet 0.6",
            "mnist_1percent",
            {0.982: (486, 1502, 863, 754), 0.972: (180, 332, 199, 166)},
            MINUTES,
            "table 5",
            {"partition.concentration": 0.6},
        ),
        Setting(
            "one-iid",
            "MNIST, 1 %, IID",
            "mnist_1percent",
            {0.983: (529, 956, 644, 451), 0.973: (145, 290, 151, 143)},
            MINUTES,
            "table 5",
            {"partition": {"name": "iid", "clients": 100}},
        ),
    ],
)
