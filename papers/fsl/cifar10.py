"""FSL, table I: FedAvg and SCAFFOLD with and without server learning, on a fifth of CIFAR-10."""

from papers.fsl.plus import Setting, study

ROUNDS = 300
STUDY = study(
    "fsl/cifar10",
    "A fifth of CIFAR-10 over 200 clients: rounds to a target, with and without server learning",
    "cifar10",
    "nothing: the paper's values for CIFAR-10 are fixed (appendix C-A).",
    [
        Setting(
            "dirichlet01",
            "CIFAR-10, Dirichlet 0.1",
            "cifar10",
            {
                "data.batches": 1,
                # As many examples a client as in the paper, and as large a share of all at the server.
                "partition.clients": 200,
                "server.each": 10,
                "server.local.batch_size": 40,
                "model": {
                    "name": "cnn",
                    "channels": [8, 16],
                    "dense": [64],
                    "kernel": 3,
                    "padding": "SAME",
                    "init": "torch",
                },
                "rounds": ROUNDS,
                "evaluate.every": 5,
                "window": 2,
            },
            "CIFAR-10",
            ("65 %",),
            {
                "fedavg": (608, 68.70),
                "fedavg_plus": (247, 73.26),
                "scaffold": (508, 67.29),
                "scaffold_plus": (187, 73.89),
            },
            (ROUNDS, 1500),
            "a fifth of the training data, 200 clients in place of 1,000 (50 examples each and 10 a round as "
            "in the paper), 10 examples of each of 20 clients at the server in place of 50, a smaller "
            "network (8 and 16 channels, 64), 300 rounds in place of 1,500, FedAvg and SCAFFOLD alone",
            "CIFAR-10, 10,000 and 10,000 images",
            minutes=4.0,
        )
    ],
)
