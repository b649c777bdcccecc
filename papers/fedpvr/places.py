"""Tables and figures of the FedPVR paper without a study: the data are not at hand, or a CPU takes weeks."""

from papers.study import Place

CIFAR100 = "CIFAR-100 is not at hand, and the network takes days to months on two cores."
CIFAR10 = "the whole of CIFAR-10 is not at hand, and the network takes days to months on two cores."
# All four methods, three seeds and 100 rounds.
VGG, RESNET = 2000.0, 80.0
DRIFT = "--set 'evaluate.also=[{ name = \"drift\" }]'"


def _run(file: str, more: str = "") -> str:
    return f"holdfast run papers/fedpvr/{file}.toml {more}".strip()


def _tables(
    what: str, file: str, rounds: str, accuracies: str, hours: float, why: str
) -> tuple[Place, ...]:
    """A column of tables 2 and 3: both come from the same runs."""
    names = "FedAvg / FedProx / SCAFFOLD / FedPVR"
    goal = "44 %" if "100" in file.partition("_")[0] else "66 %"
    return (
        Place("table 2", f"{what}: rounds to {goal}", f"{names}: {rounds}", _run(file), hours, why),
        Place(
            "table 3",
            f"{what}: accuracy in % after 80 rounds",
            f"{names}: {accuracies}",
            _run(file, "--set rounds=80"),
            0.8 * hours,
            why,
        ),
    )


def _central(what: str, file: str, accuracy: str, hours: float, why: str) -> Place:
    more = "--set rounds=80 --set 'algorithm=[{ name = \"centralised\" }]' --set local.momentum=0.0"
    return Place(
        "table 3", f"{what}, centralised: accuracy in %", accuracy, _run(file, more), hours, why
    )


PLACES: tuple[Place, ...] = (
    Place(
        "table 1",
        "what letters stand for",
        "nothing is measured in it",
        "holdfast papers run fedpvr/table2",
        0.5,
        "there is nothing to run.",
    ),
    Place(
        "figure 1",
        "the method, and its speed over what is transmitted, VGG-11 on CIFAR-10",
        "fewer rounds than the others at slightly more parameters than FedAvg",
        _run("cifar10_vgg11"),
        VGG,
        "the text at hand has neither picture nor caption; its numbers are those of tables 2 and 3, which "
        "`fedpvr/table2` has in small.",
    ),
    *_tables(
        "CIFAR-10, ResNet-8, Dirichlet 0.5",
        "cifar10_resnet8_dirichlet05",
        "15 / 20 / 9 / 5",
        "79.1 / 77.9 / 80.3 / 83.6",
        RESNET,
        CIFAR10,
    ),
    *_tables(
        "CIFAR-100, VGG-11, Dirichlet 0.1",
        "cifar100_vgg11",
        "100+ / 100+ / 80 / 37",
        "34.3 / 35.0 / 43.4 / 43.5",
        VGG,
        CIFAR100,
    ),
    *_tables(
        "CIFAR-100, ResNet-8, Dirichlet 0.1",
        "cifar100_resnet8",
        "100+ / 100+ / 61 / 66",
        "38.8 / 42.0 / 43.8 / 43.5",
        RESNET,
        CIFAR100,
    ),
    *_tables(
        "CIFAR-100, VGG-11, Dirichlet 1.0",
        "cifar100_vgg11_dirichlet1",
        "80 / 80 / 36 / 12",
        "45.0 / 43.2 / 50.6 / 58.0",
        VGG,
        CIFAR100,
    ),
    *_tables(
        "CIFAR-100, ResNet-8, Dirichlet 1.0",
        "cifar100_resnet8_dirichlet1",
        "56 / 59 / 25 / 15",
        "47.0 / 47.2 / 52.3 / 52.3",
        RESNET,
        CIFAR100,
    ),
    _central("CIFAR-10, ResNet-8", "cifar10_resnet8", "81.7", 16, CIFAR10),
    _central("CIFAR-100, VGG-11", "cifar100_vgg11", "56.3", 400, CIFAR100),
    _central("CIFAR-100, ResNet-8", "cifar100_resnet8", "55.7", 16, CIFAR100),
    Place(
        "figure 3",
        "CIFAR-10 with ResNet-8, Dirichlet 0.1: accuracy over the mean size of prediction sets",
        "curves; FedPVR reaches the centralised accuracy with sets as small as the others' or smaller",
        _run("cifar10_resnet8", "--set rounds=80 --set conformal.share=0.2"),
        0.8 * RESNET,
        f"{CIFAR10} A run has one kappa; `--set conformal.kappa=` has others.",
    ),
    *(
        Place(
            "figure 3",
            f"CIFAR-100 with {name}, Dirichlet 0.1: accuracy over the mean size of prediction sets",
            "curves; FedPVR reaches the centralised accuracy with sets as small as the others' or smaller",
            _run(file, "--set rounds=80 --set conformal.share=0.2"),
            0.8 * hours,
            f"{CIFAR100} A run has one kappa; `--set conformal.kappa=` has others.",
        )
        for name, file, hours in (
            ("VGG-11", "cifar100_vgg11", VGG),
            ("ResNet-8", "cifar100_resnet8", RESNET),
        )
    ),
    Place(
        "figure 4",
        "CIFAR-100 with ResNet-8, Dirichlet 1.0: drift diversity by layer, and accuracy",
        "of the classifier FedAvg above SCAFFOLD above FedPVR; of the others FedPVR above SCAFFOLD",
        _run("cifar100_resnet8_dirichlet1", DRIFT),
        RESNET,
        f"{CIFAR100} `fedpvr/drift` has it in small.",
    ),
    Place(
        "figure 5",
        "CIFAR-100 with VGG-11, Dirichlet 1.0: accuracy by round, by where variance reduction begins",
        "the later it begins the faster; FedAvg is the slowest",
        _run(
            "cifar100_vgg11_dirichlet1",
            '--set algorithm.fedpvr.mask=\'["convolution_7", "dense", "classifier"]\' '
            '--set algorithm.fedpvr.local.momentum_on=\'["!convolution_7", "!dense", "!classifier"]\'',
        ),
        VGG / 4,
        f"{CIFAR100} Hours are those of one beginning; `fedpvr/first_layer` has it in small.",
    ),
    Place(
        "table C.1",
        "learning rates and schedules, ResNet-8 on CIFAR-10",
        "FedAvg 0.1 and 0.2, SCAFFOLD 0.1 and 0.3, FedPVR 0.1 and 0.3 (Dirichlet 0.1 and 0.5), all constant",
        _run("cifar10_resnet8", "--set local.learning_rate=0.05"),
        RESNET,
        f"{CIFAR10} The hours are of one rate of the four that were searched.",
    ),
    Place(
        "table C.2",
        "learning rates and schedules, CIFAR-100",
        "VGG-11: FedAvg 0.1 and 0.05, SCAFFOLD 0.1, FedPVR 0.1; ResNet-8: FedAvg 0.1, SCAFFOLD 0.2, "
        "FedPVR 0.1 (Dirichlet 0.1 and 1.0); cosine for SCAFFOLD with ResNet-8 at 0.1, else constant",
        _run("cifar100_resnet8", "--set local.learning_rate=0.05"),
        RESNET,
        f"{CIFAR100} The hours are of one rate of the four that were searched.",
    ),
    Place(
        "figure C.2",
        "CIFAR-100 with ResNet-8: accuracy by round, by where variance reduction begins",
        "the later it begins the faster; FedAvg is the slowest",
        _run(
            "cifar100_resnet8_dirichlet1",
            '--set algorithm.fedpvr.mask=\'["stage_2_block_0", "classifier"]\' '
            '--set algorithm.fedpvr.local.momentum_on=\'["!stage_2_block_0", "!classifier"]\'',
        ),
        RESNET / 4,
        f"{CIFAR100} The hours are of one beginning, here the last block; `fedpvr/resnet8` has it in small.",
    ),
    Place(
        "figure C.3",
        "CIFAR-100 with VGG-11, Dirichlet 0.1: drift diversity by layer, and accuracy",
        "of the classifier FedAvg above SCAFFOLD above FedPVR; of the others FedPVR above SCAFFOLD at first",
        _run("cifar100_vgg11", DRIFT),
        VGG,
        f"{CIFAR100} `fedpvr/drift` has it in small.",
    ),
)
