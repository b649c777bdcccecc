"""FedDyn, table 1: a thousand devices with few images each; on MNIST, where the paper has CIFAR-10."""

from papers.feddyn.targets import NEVER, Setting, study

TITLE = "1,000 devices, 10 %, {}"
WHAT = "1,000 devices, 10 %, {}: models transmitted; the paper: CIFAR-10 until {} %, here MNIST until {} %"
SCALE = "MNIST in place of CIFAR-10, 10 epochs for every method, at most 400 rounds"
# 60 images a device: in batches of 50, two steps an epoch.
CHANGES = {"partition.clients": 1000, "rounds": 400, "local.epochs": 10}
OWN = {"scaffold": {"algorithm.scaffold.local.steps": 20}}
MINUTES = (6.0, 6.0, 8.0, 8.0)
STUDY = study(
    "feddyn/massive",
    "A thousand devices: models transmitted until a target accuracy, on MNIST",
    "nothing: learning rate, decay, alpha and mu are those of the paper's MNIST with 100 devices; 10 epochs.",
    [
        Setting(
            "massive-dirichlet03",
            TITLE.format("Dirichlet 0.3"),
            "mnist",
            {0.975: (831, NEVER, NEVER, NEVER), 0.965: (350, 2138, 1962, 1517)},
            MINUTES,
            "table 1",
            CHANGES,
            OWN,
            SCALE,
            elsewhere={
                0.975: WHAT.format("Dirichlet 0.3", 80.0, 97.5),
                0.965: WHAT.format("Dirichlet 0.3", 70.6, 96.5),
            },
            cap=2000,
        ),
        Setting(
            "massive-iid",
            TITLE.format("IID"),
            "mnist",
            {0.975: (840, NEVER, NEVER, NEVER), 0.965: (305, 928, 1277, 1274)},
            MINUTES,
            "table 1",
            {"partition": {"name": "iid", "clients": 1000}, "rounds": 400, "local.epochs": 10},
            OWN,
            SCALE,
            elsewhere={
                0.975: WHAT.format("IID", 80.0, 97.5),
                0.965: WHAT.format("IID", 62.3, 96.5),
            },
            cap=2000,
        ),
    ],
)
