"""FSL: does a server that learns from a few examples of its own speed up federated learning?

Three comparisons, each over several seeds; a table (Markdown and CSV) and a figure of each:

  classes   FSL against FL, data sharing and non-incremental server learning, with C = 1, 2, 5
            and 10 classes per client (the paper's figure 1)
  gamma     FSL with several weights of the server's loss, one class per client (its figure 2)
  plus      FedAvg, SCAFFOLD, FedDyn and FedDC with and without server learning, Dirichlet(0.1)
            (its table I)
"""

import argparse
import contextlib
import dataclasses
import functools
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markdown import Markdown
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

import holdfast as hf
from papers.fsl import data, report
from papers.fsl.curves import Curve
from papers.fsl.settings import (
    DIGITS,
    ON_CLASSES,
    PLANS,
    PLUS,
    Method,
    Plan,
    Setting,
    Steps,
    method,
    same_steps,
)

COMPARISONS = ("classes", "gamma", "plus")
RESULTS = Path(__file__).parent / "results"
GAMMAS: dict[str, Any] = {
    "0": 0.0,
    "0.05": 0.05,
    "0.1": 0.1,
    "0.5": 0.5,
    "1": 1.0,
    "2": 2.0,
    "1, decaying": hf.schedules.exponential(1.0, 0.97),
}

Divide = Callable[[hf.Examples, int], hf.Clients]  # (examples, seed) -> clients
Tell = Callable[[str], None]  # told after every round what is running


@dataclasses.dataclass(frozen=True)
class World:
    """Who holds what, and the network."""

    clients: hf.Clients
    own: hf.Examples  # the server's
    test: hf.Examples
    model: hf.Model


@dataclasses.dataclass(frozen=True)
class Job:
    """One run of a comparison."""

    group: str
    name: str
    method: Method
    setting: Setting
    divide: Divide
    seed: int


def build_world(split: data.Split, setting: Setting, divide: Divide, seed: int) -> World:
    """Give the server its examples and divide the others; a function of the seed."""
    train, test = split
    rest, own = data.hold_out(train, setting.server_examples / len(train.y), seed)
    return World(divide(rest, seed), own, test, model_for(setting, split))


def model_for(setting: Setting, split: data.Split) -> hf.Model:
    """The network: one hidden layer, so that a run takes seconds."""
    return hf.models.mlp([setting.hidden], classes=int(split[0].y.max()) + 1)


def run_job(job: Job, world: World, tell: Tell | None = None) -> Curve:
    """Test accuracy round by round. A run whose numbers overflow stays at zero from there."""
    setting = job.setting
    train = functools.partial(hf.Local, steps=setting.steps, batch_size=setting.batch_size)
    eta_0, shares = job.method.eta_0, job.method.shares_data
    accuracy = np.zeros(setting.rounds)

    def note(state: hf.RunState) -> None:
        accuracy[state.round - 1] = state.history[-1]["accuracy"]
        if tell is not None:
            tell(f"{job.group}, {job.name}, seed {job.seed}")

    with contextlib.suppress(hf.RoundFailedError):
        hf.simulate(
            job.method.algorithm,
            world.model,
            hf.data.share(world.clients, world.own) if shares else world.clients,
            train(job.method.eta_l),
            setting.rounds,
            cohort=hf.cohorts.fixed(setting.cohort),
            evaluate=hf.evaluate.on(world.test),
            seed=job.seed,
            server=None if eta_0 is None else hf.Server(world.own, train(eta_0)),
            progress=False,
            on_round=note,
        )
    return Curve(job.group, job.name, job.seed, accuracy)


def run_all(jobs: Sequence[Job], split: data.Split, tell: Tell | None = None) -> list[Curve]:
    """All runs; those with the same division and seed share one world."""
    build = functools.lru_cache(maxsize=1)(functools.partial(build_world, split))
    return [run_job(j, build(j.setting, j.divide, j.seed), tell) for j in jobs]


@functools.cache  # one function per division, so that jobs can be seen to share a world
def divide_by_classes(clients: int, classes: int) -> Divide:
    """Each client holds so many classes."""
    return lambda rest, seed: hf.data.partition.by_classes(rest, clients, classes, seed)


@functools.cache
def divide_by_dirichlet(clients: int, concentration: float) -> Divide:
    """Each client draws class priors."""
    return lambda rest, seed: hf.data.partition.dirichlet(rest, clients, concentration, seed)


def classes_jobs(
    plan: Plan, classes: Sequence[int], seeds: int, steps: Steps | None = None
) -> list[Job]:
    """Comparison 1; with `steps` for all methods alike, or each with its own."""
    return [
        Job(
            f"C = {c}",
            name,
            method(name, steps or plan.steps(name, plan.few)),
            plan.few,
            divide,
            seed,
        )
        for c in classes
        for divide in [divide_by_classes(plan.few.clients, c)]
        for seed in range(seeds)
        for name in ON_CLASSES
    ]


def gamma_jobs(plan: Plan, rates: Sequence[float], seeds: int, classes: int = 1) -> list[Job]:
    """Comparison 2, for several step sizes of the clients."""
    divide = divide_by_classes(plan.few.clients, classes)
    eta_g = plan.few.root_of_cohort
    return [
        Job(f"{rate}", name, method("FSL", Steps(rate, eta_g), gamma), plan.few, divide, seed)
        for rate in rates
        for seed in range(seeds)
        for name, gamma in GAMMAS.items()
    ]


def plus_jobs(plan: Plan, seeds: int, steps: Steps | None = None) -> list[Job]:
    """Comparison 3; with `steps` for all methods alike, or each with its own."""
    divide = divide_by_dirichlet(plan.many.clients, 0.1)
    return [
        Job(
            "Dirichlet(0.1)",
            n,
            method(n, steps or plan.steps(n, plan.many)),
            plan.many,
            divide,
            seed,
        )
        for seed in range(seeds)
        for n in PLUS
    ]


def compare_on_classes(
    classes: Sequence[int] = (1, 2, 5, 10),
    seeds: int = 3,
    rounds: int | None = None,
    plan: Plan = DIGITS,
    steps: Steps | None = None,
) -> list[Curve]:
    """Comparison 1 on digits: FSL, FL, DS and FSL-p for so many classes per client.

    Example:
        >>> curves = compare_on_classes(classes=(1,), seeds=1, rounds=2)
        >>> [(c.group, c.method, len(c.accuracy)) for c in curves][-1]
        ('C = 1', 'FSL', 2)
    """
    plan = plan if rounds is None else shortened(plan, rounds)
    return run_all(classes_jobs(plan, classes, seeds, steps), data.load("digits"))


def shortened(plan: Plan, rounds: int) -> Plan:
    """The same with fewer rounds."""
    few, many = (dataclasses.replace(s, rounds=rounds) for s in (plan.few, plan.many))
    return dataclasses.replace(plan, few=few, many=many)


def server_alone(split: data.Split, setting: Setting, seeds: int) -> float:
    """Mean accuracy of a model trained on the server's examples and nothing else."""
    train, test = split
    model = model_for(setting, split)
    found = []
    for seed in range(seeds):
        _, own = data.hold_out(train, setting.server_examples / len(train.y), seed)
        local = hf.Local(0.1, steps=setting.steps, batch_size=setting.batch_size)
        params = hf.pretrain(model, hf.Server(own, local), setting.rounds, seed)
        found.append(hf.evaluate.measure(model, params, test)["accuracy"])
    return float(np.mean(found))


@dataclasses.dataclass(frozen=True)
class Study:
    """The three comparisons on one data set; each writes its table and figure."""

    name: str
    split: data.Split
    plan: Plan
    seeds: int
    folder: Path
    bar: Progress
    classes_per_client: tuple[int, ...] = (1, 2, 5, 10)
    rates: tuple[float, ...] = (0.1, 0.3)

    def classes(self) -> None:
        """Comparison 1."""
        setting, alone = self.plan.few, server_alone(self.split, self.plan.few, self.seeds)
        build = functools.partial(classes_jobs, self.plan, self.classes_per_client, self.seeds)
        own = self.run("classes", build())
        same = self.run("classes, same step sizes", build(same_steps(setting)))
        heading = f"{self.describe(setting, alone)} {report.wins(own, setting)}"
        table = report.classes_table(own, same, setting)
        write(self.folder / "classes", heading, table, report.classes_figure(own, setting, alone))
        report.write_csv(self.folder / "classes.csv", {"own": own, "same": same}, setting.targets)

    def gamma(self) -> None:
        """Comparison 2."""
        setting, alone = self.plan.few, server_alone(self.split, self.plan.few, self.seeds)
        curves = self.run("gamma", gamma_jobs(self.plan, self.rates, self.seeds))
        heading = f"{self.describe(setting, alone)} One class per client."
        table = report.gamma_table(curves, setting)
        write(self.folder / "gamma", heading, table, report.gamma_figure(curves, setting, alone))
        report.write_csv(self.folder / "gamma.csv", {"given": curves}, setting.targets)

    def plus(self) -> None:
        """Comparison 3."""
        setting, alone = self.plan.many, server_alone(self.split, self.plan.many, self.seeds)
        own = self.run("plus", plus_jobs(self.plan, self.seeds))
        same = self.run(
            "plus, same step sizes", plus_jobs(self.plan, self.seeds, same_steps(setting))
        )
        heading = f"{self.describe(setting, alone)} Dirichlet(0.1)."
        table = report.plus_table(own, same, setting)
        write(self.folder / "plus", heading, table, report.plus_figure(own, setting, alone))
        report.write_csv(self.folder / "plus.csv", {"own": own, "same": same}, setting.targets)

    def run(self, title: str, jobs: Sequence[Job]) -> list[Curve]:
        """All jobs, with a bar of their own that counts rounds."""
        task = self.bar.add_task(title, total=sum(job.setting.rounds for job in jobs), running="")
        tell = functools.partial(self.bar.update, task, advance=1)
        return run_all(jobs, self.split, lambda running: tell(running=running))

    def describe(self, setting: Setting, alone: float) -> str:
        """The setting in words."""
        return (
            f"{self.name}: {setting.clients} clients, {setting.cohort} a round, {setting.rounds} "
            f"rounds, {setting.steps} local steps; the server has {setting.server_examples} "
            f"examples, which alone give {100 * alone:.1f} %. "
            f"{self.seeds} seed{'s' * (self.seeds > 1)}: mean (least to most)."
        )


def write(path: Path, heading: str, table: str, figure: Any) -> None:
    """A Markdown table and a figure of the same name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".md").write_text(f"{heading}\n\n{table}", encoding="utf-8")
    report.save(figure, path.with_suffix(".png"))
    Console().print(Markdown(f"**{path.name}**\n\n{heading}\n\n{table}"))


def progress_bar() -> Progress:
    """A line for each comparison, on the error stream."""
    columns = (
        TextColumn("{task.description:24}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[running]}"),
    )
    return Progress(*columns, console=Console(stderr=True))


def at_least_one(text: str) -> int:
    """For argparse, which turns the exception into a message."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: give a whole number of at least 1")
    return int(text)


def read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """What was asked for on the command line."""
    options = argparse.ArgumentParser(
        prog="python -m papers.fsl.study",
        description=__doc__,
        epilog="examples:\n"
        "  python -m papers.fsl.study --quick       a look, in about a minute\n"
        "  python -m papers.fsl.study               the tables of the README, a few minutes\n"
        "  python -m papers.fsl.study --data mnist  the same on MNIST, more than half an hour",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument(
        "--data", choices=sorted(PLANS), default="digits", help="bundled digits unless given"
    )
    options.add_argument(
        "--folder",
        type=Path,
        default=data.DEFAULT_FOLDER,
        help="has mnist/ (the four idx files, gzipped) and emnist/ (emnist-balanced*.mat); "
        "../shared/data beside the repository unless given",
    )
    options.add_argument("--seeds", type=at_least_one, default=3, help="runs of every method (3)")
    options.add_argument(
        "--only", choices=COMPARISONS, nargs="+", default=COMPARISONS, help="some comparisons"
    )
    options.add_argument(
        "--quick",
        action="store_true",
        help="one seed, 20 rounds, C = 1 and 2: only shows that it runs",
    )
    options.add_argument(
        "--out", type=Path, help="folder for tables and figures; results/ unless given"
    )
    return options.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the study as asked on the command line."""
    asked = read_options(arguments)
    try:
        split = data.load(asked.data, asked.folder)
    except FileNotFoundError as missing:
        print(
            f"--data {asked.data}: {missing.filename} is not there; give --folder.", file=sys.stderr
        )
        return 1
    # Only the complete run on digits goes where the README's tables are.
    default = RESULTS if asked.data == "digits" else RESULTS / asked.data
    folder = asked.out or (RESULTS / "quick" if asked.quick else default)
    began = time.perf_counter()
    with progress_bar() as bar:
        study = Study(asked.data, split, PLANS[asked.data], asked.seeds, folder, bar)
        if asked.quick:
            plan = shortened(study.plan, 20)
            study = dataclasses.replace(
                study, plan=plan, seeds=1, classes_per_client=(1, 2), rates=(0.1,)
            )
        for comparison in asked.only:
            getattr(study, comparison)()
    print(f"{folder}: written after {time.perf_counter() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
