"""holdfast, through its public `hf.rounds`, on the devices and with the cache the command uses."""

from typing import Any

import protocol

from holdfast.cli import use_machine

SEED = 0


def model_of(problem: protocol.Problem) -> Any:
    """The library's own model."""
    import holdfast as hf

    if problem.name == "lr":
        return hf.models.softmax_regression(problem.classes)
    if problem.name == "mlp":
        return hf.models.mlp([200, 200], problem.classes)
    if problem.name == "cnn":
        return hf.models.cnn(problem.classes)
    if problem.name == "resnet":
        return hf.models.resnet8(problem.classes)
    if problem.name == "vgg":
        return hf.models.vgg11(problem.classes, dropout=0.0)
    return hf.models.lstm(problem.classes)


def nested(flat: protocol.Arrays) -> dict[str, Any]:
    """Leaves by path as nested dictionaries."""
    tree: dict[str, Any] = {}
    for path, leaf in flat.items():
        *above, name = path.split("/")
        here = tree
        for part in above:
            here = here.setdefault(part, {})
        here[name] = leaf
    return tree


def flat(tree: dict[str, Any], above: str = "") -> protocol.Arrays:
    """And back."""
    import numpy as np

    found: protocol.Arrays = {}
    for name, below in tree.items():
        if isinstance(below, dict):
            found |= flat(below, f"{above}{name}/")
        else:
            found[f"{above}{name}"] = np.asarray(below)
    return found


def settings(
    problem: protocol.Problem, x: Any, y: Any, offsets: Any, params: Any, method: str
) -> dict[str, Any]:
    """The arguments of `hf.rounds`; shuffling is the library's own."""
    import numpy as np

    import holdfast as hf

    algorithms = {
        "fedavg": hf.algorithms.fedavg,
        "feddyn": lambda: hf.algorithms.feddyn(alpha=problem.alpha),
    }
    everyone = problem.cohort == problem.population
    return {
        "algorithm": algorithms[method](),
        "model": model_of(problem),
        "clients": hf.data.Clients(hf.Examples(x, y), np.arange(len(y)), offsets),
        "local": hf.Local(
            learning_rate=problem.learning_rate,
            epochs=problem.epochs,
            batch_size=problem.batch_size,
        ),
        "cohort": hf.cohorts.everyone() if everyone else hf.cohorts.fixed(problem.cohort),
        "params": nested(params),
        "seed": SEED,
    }


def main() -> None:
    """Run and measure."""
    asked = protocol.options()
    watch = protocol.Watch(asked.started)
    use_machine()
    import jax

    import holdfast as hf

    task = protocol.Task.load(asked.task)
    x, y = hf.data.read_only((task.x, task.y))
    problem, offsets, params = task.problem, task.offsets, task.params
    # Only the population has the data now, as in an experiment file.
    del task
    # How many devices a round uses is the engine's choice unless it is said.
    engine = hf.Engine(devices=int(asked.variant)) if asked.variant else None
    given = settings(problem, x, y, offsets, params, asked.method)
    stream = hf.rounds(**given, engine=engine)
    for _ in range(asked.rounds):
        state = next(stream)
        watch.lap()
    protocol.finish(asked, watch, flat(jax.device_get(state.params)), jax=jax.__version__)


if __name__ == "__main__":
    main()
