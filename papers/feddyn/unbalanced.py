"""FedDyn, table 4: devices of unequal sizes; on MNIST, where the paper has CIFAR-10."""

from papers.feddyn.targets import NEVER, Setting, study

WHAT = "unequal sizes, Dirichlet 0.3: models transmitted; the paper: CIFAR-10 until {} %, here MNIST {} %"
WEIGHED = {m: {f"algorithm.{m}.weighting": "examples"} for m in ("feddyn", "scaffold")}
STUDY = study(
    "feddyn/unbalanced",
    "100 devices of unequal sizes: models transmitted until a target accuracy, on MNIST",
    "nothing: hyper-parameters are those of the paper's MNIST with equal sizes, which it prints.",
    [
        Setting(
            "unbalanced-dirichlet03",
            "unequal sizes, 10 %, Dirichlet 0.3",
            "mnist",
            {0.978: (524, 1998, NEVER, NEVER), 0.972: (274, 652, 893, NEVER)},
            (10, 10, 6, 8),
            "table 4",
            {"partition.sigma": 0.3, "rounds": 300},
            WEIGHED,
            "MNIST in place of CIFAR-10, at most 300 rounds",
            elsewhere={0.978: WHAT.format(82.5, 97.8), 0.972: WHAT.format(80.1, 97.2)},
        ),
    ],
)
