"""Tables and figures of the FSL paper and its supplement without a study."""

from papers.study import Place

CIFAR = "the whole of CIFAR is not at hand, and the convolutional network takes days on two cores"
LETTERS = (
    "the whole of EMNIST is not at hand (the loader says where its files go), and the convolutional network "
    "takes days on two cores"
)
ON_MNIST = "on MNIST with a perceptron it is the study"


def _table(what: str, paper: str, file: str, hours: float, why: str) -> Place:
    """Numbers are rounds to the lower / the higher target, and the final accuracy."""
    return Place("table I", what, paper, f"holdfast run papers/fsl/{file}.toml", hours, f"{why}.")


def _run(place: str, what: str, paper: str, file: str, hours: float, why: str, more: str) -> Place:
    command = f"holdfast run papers/fsl/{file}.toml {more}".strip()
    return Place(place, what, paper, command, hours, f"{why}.")


def _rates(algorithm: str) -> str:
    return f"""--set 'sweep={{ "algorithm.{algorithm}.gamma" = [0.1, 0.5, 1.0, 2.0] }}'"""


CURVES = "curves; in words: FedAvg and SCAFFOLD gain more than FedDyn and FedDC"
NO_START = " ".join(f"--set algorithm.{of}.server.pretrain=0" for of in ("DS", "FSL-p", "FSL"))


def _few_classes(clients: int, batch: int, senders: int) -> str:
    """The supplement's setting with data of few clients, with two classes each."""
    split = f"""--set 'partition={{ name = "by_classes", clients = {clients}, classes = 2 }}'"""
    rest = f"rounds=1000 local.epochs=1 local.batch_size={batch} server.clients={senders}"
    return " ".join([split, *(f"--set {one}" for one in rest.split())])


PLACES: tuple[Place, ...] = (
    _table(
        "EMNIST, Dirichlet 0.1, 450 clients: rounds to 80 % / 82 %, accuracy after 400",
        "FedAvg 134 / 238, 83.11; FedAvg+ 49 / 91, 84.80; SCAFFOLD 187 / 248, 82.86; "
        "SCAFFOLD+ 38 / 65, 85.92; FedDyn 97 / 168, 84.08; FedDyn+ 53 / 88, 85.39; "
        "FedDC 85 / 119, 85.34; FedDC+ 47 / 74, 86.00",
        "emnist",
        130,
        f"{LETTERS}; {ON_MNIST} fsl/table1",
    ),
    _table(
        "EMNIST, Dirichlet 0.3, 450 clients: rounds to 80 % / 82 %, accuracy after 400",
        "FedAvg 81 / 139, 84.41; FedAvg+ 35 / 65, 85.51; SCAFFOLD 107 / 162, 84.43; "
        "SCAFFOLD+ 34 / 56, 86.20; FedDyn 70 / 101, 85.40; FedDyn+ 43 / 70, 85.89; "
        "FedDC 57 / 81, 86.36; FedDC+ 42 / 62, 86.50",
        "emnist_dirichlet03",
        130,
        f"{LETTERS}; {ON_MNIST} fsl/table1",
    ),
    _table(
        "CIFAR-10, Dirichlet 0.1, 1,000 clients: rounds to 65 % / 70 %, accuracy after 1,500",
        "FedAvg 608 / 1612, 68.70; FedAvg+ 247 / 631, 73.26; SCAFFOLD 508 / 1289, 67.29; "
        "SCAFFOLD+ 187 / 395, 73.89; FedDyn 393 / 738, 70.79; FedDyn+ 365 / 702, 72.24; "
        "FedDC 364 / 749, 70.53; FedDC+ 332 / 677, 71.81",
        "cifar10",
        100,
        f"{CIFAR}; in small, without FedDyn and FedDC, it is the study fsl/cifar10",
    ),
    _table(
        "CIFAR-10, Dirichlet 0.3, 1,000 clients: rounds to 65 % / 70 %, accuracy after 1,500",
        "FedAvg 354 / 751, 73.09; FedAvg+ 133 / 327, 76.45; SCAFFOLD 295 / 538, 74.58; "
        "SCAFFOLD+ 120 / 243, 77.86; FedDyn 262 / 513, 74.15; FedDyn+ 250 / 465, 75.41; "
        "FedDC 233 / 460, 74.36; FedDC+ 223 / 408, 75.61",
        "cifar10_dirichlet03",
        100,
        CIFAR,
    ),
    _table(
        "CIFAR-100, Dirichlet 0.1, 500 clients: rounds to 35 % / 40 %, accuracy after 2,000",
        "FedAvg - / -, 33.40; FedAvg+ - / -, 34.53; SCAFFOLD 950 / 1695, 40.34; SCAFFOLD+ 679 / 1432, 41.00; "
        "FedDyn 787 / 1252, 43.14; FedDyn+ 753 / 1229, 43.59; FedDC 806 / 1525, 40.55; "
        "FedDC+ 694 / 963, 45.74",
        "cifar100",
        350,
        CIFAR,
    ),
    _table(
        "CIFAR-100, Dirichlet 0.3, 500 clients: rounds to 35 % / 40 %, accuracy after 2,000",
        "FedAvg - / -, 34.03; FedAvg+ 1463 / -, 36.26; SCAFFOLD 992 / 1753, 40.00; "
        "SCAFFOLD+ 670 / 1338, 41.70; FedDyn 758 / 1147, 44.60; FedDyn+ 731 / 1109, 44.61; "
        "FedDC 863 / 1593, 40.47; FedDC+ 727 / 999, 45.70",
        "cifar100_dirichlet03",
        350,
        CIFAR,
    ),
    _run(
        "figure 1",
        "EMNIST, 45 clients with 1, 2, 5 or 45 classes: accuracy by round (the command has 2)",
        "curves; in words: FSL above DS above FL, all alike with 45",
        "emnist_classes",
        180,
        f"{LETTERS}; {ON_MNIST} fsl/classes",
        "",
    ),
    _run(
        "figure 1",
        "CIFAR-10, 10 clients with 1, 2, 5 or 10 classes: accuracy by round (the command has 2)",
        "curves; in words: FSL above DS above FL, all alike with 10",
        "cifar10_classes",
        80,
        f"{CIFAR}; {ON_MNIST} fsl/classes",
        "",
    ),
    _run(
        "figure 2",
        "EMNIST and CIFAR-10: gamma, step size, the server's examples (the command has EMNIST's gamma)",
        "curves; in words: gamma from 0.5 to 1.5 all alike, more examples better",
        "emnist_classes",
        315,
        f"{LETTERS}; {ON_MNIST} fsl/classes",
        """--set 'sweep={ "algorithm.FSL.gamma" = [0.5, 1.0, 1.5, 2.0] }'""",
    ),
    Place(
        "figure 3",
        "EMNIST, CIFAR-10, CIFAR-100: sorted labels of the server's examples",
        "a picture; in words: highly imbalanced",
        "holdfast papers run fsl/distance",
        0.1,
        "none is at hand in full; on MNIST it is the study fsl/distance.",
    ),
    _run(
        "figure 4",
        "EMNIST, CIFAR-10, CIFAR-100, Dirichlet 0.1: accuracy by round for several gamma (the command has "
        "FedAvg+ on EMNIST)",
        CURVES,
        "emnist",
        180,
        f"{LETTERS}; {ON_MNIST} fsl/gamma",
        _rates("fedavg_plus"),
    ),
    _run(
        "figure 5",
        "EMNIST, CIFAR-10, CIFAR-100: xi^2 and G^2 by round (the command has EMNIST)",
        "curves; in words: xi^2 much smaller than G^2",
        "emnist",
        200,
        f"{LETTERS}; {ON_MNIST} fsl/distance",
        """--set 'evaluate={ also = [{ name = "dissimilarity", every = 10 }] }' --set server.balance=true""",
    ),
    _run(
        "figure 6",
        "EMNIST, CIFAR-10, CIFAR-100, Dirichlet 0.3: accuracy by round for several gamma (the command has "
        "FedAvg+ on EMNIST)",
        CURVES,
        "emnist_dirichlet03",
        180,
        f"{LETTERS}; {ON_MNIST} fsl/gamma",
        _rates("fedavg_plus"),
    ),
    _run(
        "figure 7",
        "EMNIST, CIFAR-10, CIFAR-100: final accuracy against gamma (the command has FedAvg+ on CIFAR-10)",
        "curves; in words: the first two methods can have a wider range of gamma than FedDyn+ and FedDC+",
        "cifar10",
        140,
        f"{CIFAR}; {ON_MNIST} fsl/gamma",
        _rates("fedavg_plus"),
    ),
    _run(
        "supplement, figure 1",
        "EMNIST and CIFAR-10: as figure 1, nobody trained before (the command has CIFAR-10, C = 2)",
        "curves; in words: FSL gains much more than in figure 1, also where clients are alike",
        "cifar10_classes",
        80,
        f"{CIFAR}; {ON_MNIST} fsl/classes",
        NO_START,
    ),
    _run(
        "supplement, figure 2",
        "EMNIST and CIFAR-10: FSL-p, for several C and S (the command has CIFAR-10, C = 2, S = 4)",
        "curves; in words: FSL-p slightly worse than DS, FSL much better",
        "cifar10_classes",
        80,
        f"{CIFAR}; {ON_MNIST} fsl/classes, with one S",
        "--set server.examples=200",
    ),
    _run(
        "supplement, figure 3",
        "EMNIST and CIFAR-10: FSL-p for several gamma (the command has FSL's on EMNIST, C = 5)",
        "curves; in words: FSL-p slightly worse than DS, FSL much better, for every gamma",
        "emnist_classes",
        315,
        f"{LETTERS}, and the paper does not say how gamma enters FSL-p; here the server counts by examples",
        """--set partition.classes=5 --set 'sweep={ "algorithm.FSL.gamma" = [0.5, 1.0, 1.5, 2.0] }'""",
    ),
    _run(
        "supplement, figure 4",
        "EMNIST's characters beside drawn ones",
        "a picture",
        "emnist",
        130,
        "nothing is measured in it; `holdfast show rendered_characters` says how they are drawn. The command "
        "trains with them at the server",
        """--set 'server={ data = { name = "rendered_characters" } }'""",
    ),
    _run(
        "supplement, figure 5",
        "CIFAR-10's images beside those of STL-10",
        "a picture",
        "cifar10",
        100,
        "nothing is measured in it, and neither is at hand in full. The command trains with STL-10's at the "
        "server",
        """--set 'server={ data = { name = "stl10", as_cifar10 = true, max_per_class = 56 } }'""",
    ),
    _run(
        "supplement, figure 6",
        "EMNIST and CIFAR-10: final accuracy by step size and C (the command has CIFAR-10, C = 2)",
        "heat maps; in words: FSL and FSLsyn comparable with others on EMNIST, much better on CIFAR-10",
        "cifar10",
        35,
        f"{CIFAR}; {ON_MNIST} fsl/source",
        _few_classes(1000, 10, 10),
    ),
    _run(
        "supplement, figure 7",
        "CIFAR-10: accuracy by round for several step sizes and C (the command has C = 2)",
        "curves; in words: FSL and FSLsyn rise faster in most cases",
        "cifar10",
        35,
        CIFAR,
        _few_classes(1000, 10, 10),
    ),
    _run(
        "supplement, figure 8",
        "EMNIST: accuracy by round for several step sizes and C (the command has C = 2)",
        "curves; in words: FSL and FSLsyn rise faster in most cases",
        "emnist",
        170,
        f"{LETTERS}; {ON_MNIST} fsl/source",
        _few_classes(450, 50, 9),
    ),
    _run(
        "supplement, table 1",
        "CIFAR-10, C = 2: rounds to 50 %, accuracy after 1,000",
        "FedDyn 502, 0.5779; FLSyn with 504 and 720 examples 339, 0.5763 and 333, 0.5835; FSL with 250 and "
        "500 examples 238, 0.5845 and 203, 0.6144",
        "cifar10",
        35,
        CIFAR,
        _few_classes(1000, 10, 10),
    ),
)
