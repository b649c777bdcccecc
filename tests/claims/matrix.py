"""Every method in every setting, by another way that must come to the same: equal, or refused.

`make matrix` runs all of it, writes one file per method under `build/matrix`, and `docs/combinations.md` from
those; what is there already is not run again. The suite runs a part (`test_matrix.py`).
"""

import dataclasses
import functools
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import holdfast as hf
from holdfast.core.rule import Need
from tests.claims.test_conformance import ALGORITHMS
from tests.problems import largest_difference

# Names of one rule with other numbers, and of wires, are tried out elsewhere.
LEFT_OUT = {
    "fedavg, server step",
    "fedprox, per client",
    "scaffold, published",
    "flix, diana, per client",
    "damped scaffold through diana",
    "signs, clipped",
    "downlink",
    "diana from gradients",
    "an optax optimiser",
}
METHODS = tuple(name for name in ALGORITHMS if name not in LEFT_OUT)
ITEMS, WIDTH, CLASSES, ROUNDS = 9, 2, 3, 3
# Halves with as many clients, examples and steps, so that two populations weigh like one.
SIZES = (6, 2, 4, 4)
DECAY = 0.3


def _loss(params: Any, batch: Any) -> Any:
    hidden = jnp.mean(params["items"][batch.x], axis=1)
    logits = jnp.tanh(hidden) @ params["classifier"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch.y)


def _init(key: Any, examples: Any) -> Any:
    items, classifier = jax.random.split(key)
    return {
        "classifier": jax.random.normal(classifier, (WIDTH, CLASSES)),
        "items": jax.random.normal(items, (ITEMS, WIDTH)),
    }


MODEL = hf.Model(_init, _loss, name="bag of items", tables=(hf.Table("items", ("x",)),))


def _l2_loss(params: Any, batch: Any) -> Any:
    return _loss(params, batch) + DECAY / 2 * sum(jnp.vdot(p, p) for p in jax.tree.leaves(params))


WITH_L2 = hf.Model(_init, _l2_loss, name="bag of items, regularised")


def _people(seed: int, sizes: tuple[int, ...]) -> list[hf.Examples]:
    rng = np.random.default_rng(seed)
    found = []
    for n in sizes:
        own = rng.choice(ITEMS, 3, replace=False)
        x = rng.choice(own, (n, 2)).astype(np.int32)
        found.append(hf.Examples(x, rng.integers(0, CLASSES, n).astype(np.int32)))
    return found


CLIENTS = hf.Clients.from_datasets(_people(0, SIZES))
CENTRE = _people(1, (6,))[0]
LOCAL = hf.Local(0.2, epochs=1, batch_size=2)
SERVER = hf.Server(CENTRE, hf.Local(0.1, steps=2))


def _base(name: str) -> hf.Experiment:
    algorithm = ALGORITHMS[name]
    learns = Need.SERVER_DATA in algorithm.rule.traits.needs
    return hf.Experiment(algorithm, MODEL, CLIENTS, LOCAL, server=SERVER if learns else None)


def _with_local(experiment: hf.Experiment, **changes: Any) -> hf.Experiment:
    """At the clients, and at the server where the method lets it."""
    local = dataclasses.replace(experiment.local, **changes)
    server = experiment.server
    plain = Need.PLAIN_SERVER_STEPS in experiment.algorithm.rule.traits.needs
    if server is not None and not (plain and changes.keys() & {"momentum", "optimizer"}):
        server = dataclasses.replace(server, local=dataclasses.replace(server.local, **changes))
    return dataclasses.replace(experiment, local=local, server=server)


def _with_algorithm(experiment: hf.Experiment, **changes: Any) -> hf.Experiment:
    algorithm = dataclasses.replace(experiment.algorithm, **changes)
    return dataclasses.replace(experiment, algorithm=algorithm)


def _compressed(experiment: hf.Experiment, share: float) -> hf.Experiment | None:
    if type(experiment.algorithm.wire) is not hf.Wire:
        return None
    return _with_algorithm(experiment, wire=hf.wires.Compressed(hf.wires.TopK(share=share)))


def _masked(experiment: hf.Experiment, mask: Callable[[str], bool]) -> hf.Experiment:
    return _with_algorithm(experiment, rule=hf.Masked(experiment.algorithm.rule, mask))


def _other_weighting(experiment: hf.Experiment) -> str:
    """Not the method's own."""
    return "examples" if experiment.algorithm.weighting == "uniform" else "uniform"


# What a method is set in; None where the setting does not apply to it.
SETTINGS: dict[str, Callable[[hf.Experiment], hf.Experiment | None]] = {
    "plain": lambda e: e,
    "clip": lambda e: _with_local(e, clip=0.2),
    "decay": lambda e: _with_local(e, weight_decay=DECAY),
    "momentum": lambda e: _with_local(e, momentum=0.5),
    "Adam": lambda e: _with_local(e, optimizer=optax.adam),
    "weighting": lambda e: _with_algorithm(e, weighting=_other_weighting(e)),
    "wire": lambda e: _compressed(e, 0.5),
    "mask": lambda e: _masked(e, lambda path: path == "classifier"),
    "cohort": lambda e: dataclasses.replace(e, cohort=hf.cohorts.fixed(3)),
}


def _joined(experiment: hf.Experiment) -> hf.Experiment | None:
    """Two halves of the population, with half the weight each."""
    if experiment.cohort is not None:
        return None
    first, second = (experiment.clients.subset(ids) for ids in ([0, 1], [2, 3]))
    both = hf.join([hf.Population(half, experiment.model, weight=0.5) for half in (first, second)])
    return dataclasses.replace(experiment, **dict(both))


def _decay_in_the_loss(experiment: hf.Experiment) -> hf.Experiment | None:
    # A method weighs its two losses, and leaves the decay of the steps as it is.
    if experiment.local.weight_decay is None or experiment.server is not None:
        return None
    return dataclasses.replace(_with_local(experiment, weight_decay=None), model=WITH_L2)


def _by_optax(experiment: hf.Experiment) -> hf.Experiment | None:
    """The same local steps by an optimiser of optax."""
    clip, momentum = experiment.local.clip, experiment.local.momentum
    if clip is None and momentum is None:
        return None

    def optimizer(step: Any) -> optax.GradientTransformation:
        limit = optax.identity() if clip is None else optax.clip_by_global_norm(clip)
        return optax.chain(limit, optax.sgd(step, momentum))

    return _with_local(experiment, clip=None, momentum=None, optimizer=optimizer)


def _server_as_a_loss(experiment: hf.Experiment) -> hf.Experiment | None:
    """All of the server's examples in a step, or a function of the parameters that knows them."""
    if experiment.server is None:
        return None
    data = jax.tree.map(jnp.asarray, CENTRE)
    return dataclasses.replace(
        experiment,
        server=hf.Server(lambda params: jnp.mean(_loss(params, data)), experiment.server.local),
    )


def _with_an_idle_server(experiment: hf.Experiment) -> hf.Experiment | None:
    """A server's data, for a method that has no use for it."""
    return None if experiment.server else dataclasses.replace(experiment, server=SERVER)


# Another way to the same result; None where it does not apply.
WAYS: dict[str, Callable[[hf.Experiment], hf.Experiment | None]] = {
    "select": lambda e: dataclasses.replace(e, select=True),
    "join": _joined,
    "lossless wire": lambda e: _compressed(e, 1.0),
    "full mask": lambda e: _masked(e, lambda path: True),
    "decay in the loss": _decay_in_the_loss,
    "steps by optax": _by_optax,
    "server's data as a loss": _server_as_a_loss,
    "idle server": _with_an_idle_server,
    "resume": lambda e: e,
}


# Ways that have nothing to do with how local steps are taken are gone in these settings only.
_ANYWHERE = ("select", "join", "resume")
_OF_STEPS = {"decay in the loss": ("decay",), "steps by optax": ("clip", "momentum")}
_ELSEWHERE = ("plain", "weighting", "cohort")


class Cell(NamedTuple):
    """What came of one combination: "equal", "refused" (with the sentence) or "different"."""

    outcome: str
    text: str = ""


def pairs() -> Iterator[tuple[str, str]]:
    """Settings and ways to cross."""
    for setting in SETTINGS:
        for way in WAYS:
            if way in _ANYWHERE or setting in _OF_STEPS.get(way, _ELSEWHERE):
                yield setting, way


def _run(experiment: hf.Experiment, resumed: bool = False) -> Any:
    if not resumed:
        return hf.simulate(experiment, rounds=ROUNDS)
    with tempfile.TemporaryDirectory() as folder:
        for rounds in (ROUNDS - 1, ROUNDS):
            run = hf.simulate(experiment, rounds=rounds, checkpoint=folder)
    return run


def _memory(run: Any) -> Any:
    """What clients remember for the method."""
    return [run.client_states[i].rule for i in range(len(run.client_states))]


@functools.lru_cache(maxsize=1)
def _plain(name: str, setting: str) -> tuple[hf.Experiment | None, Any, float]:
    """The plain way, and how far it moves."""
    experiment = SETTINGS[setting](_base(name))
    if experiment is None:
        return None, None, 0.0
    run, first = _run(experiment), hf.simulate(experiment, rounds=0)
    moved = largest_difference(run.params, first.params)
    # Where the server's model stays, clients' own move; what they remember may begin as infinite.
    moved = moved or largest_difference(_memory(run), _memory(first))
    return experiment, run, moved


def cell(name: str, setting: str, way: str) -> Cell | None:
    """Run a combination both ways; None where it does not apply."""
    try:
        experiment, plain, moved = _plain(name, setting)
        other = None if experiment is None else WAYS[way](experiment)
        if other is None:
            return None
        run = _run(other, way == "resume")
    except hf.HoldfastError as refusal:
        return Cell("refused", str(refusal))
    apart = largest_difference(plain.params, run.params)
    # Control variates that are gradients have the penalty's in them if the loss has.
    if way != "decay in the loss":
        apart = max(apart, largest_difference(_memory(plain), _memory(run)))
    limit = 0.0 if way == "resume" else 2e-5 * max(1.0, moved)
    equal = apart <= limit and moved > 1e-3
    return Cell("equal" if equal else "different", f"{apart:.1e} of {moved:.1e}")


FOLDER = Path("build/matrix")
PAGE = Path("docs/combinations.md")


def run_method(name: str) -> None:
    """All cells of a method into its file."""
    lines = []
    for setting, way in pairs():
        found = cell(name, setting, way)
        if found is not None:
            lines.append([setting, way, *found])
            print(f"{name:22} {setting:10} {way:24} {found.outcome:10} {found.text}", flush=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    _file(name).write_text(json.dumps(lines, indent=0))


def _file(name: str) -> Path:
    return FOLDER / (re.sub(r"\W+", "_", name) + ".json")


_HEAD = """\
# Combinations

Every method in every setting, run the plain way and by another way that must come to the same.
`=` is equal (bit for bit where it is resumed, otherwise up to the rounding of {rounds} rounds), a number is a
refusal, in the words below, and an empty place is where the two do not meet. Written by `make matrix`; a part
of it is run with the tests.

| setting | |
|---|---|
| clip, decay, momentum, Adam | of the local steps, at the server too where the method lets it |
| weighting | the one that is not the method's own |
| wire | half of a reply is left out |
| mask | the method on one of two parameters only |
| cohort | three of four clients in a round |

| another way | |
|---|---|
| select | clients have only the rows of the model's table that their examples use |
| join | two halves of the population, joined |
| lossless wire | a compressor that leaves nothing out |
| full mask | a mask that leaves nothing out |
| decay in the loss | as a penalty of the parameters |
| steps by optax | the same local steps by an optimiser of optax |
| server's data as a loss | of the parameters alone, which knows the data |
| idle server | a server with data, for a method that has no use for it |
| resume | stopped and gone on with |

Clients have 6, 2, 4 and 4 examples.

"""


def write_page(names: Sequence[str]) -> None:
    """The table, from the files of the methods."""
    refusals: dict[str, int] = {}
    parts, ways, tried = [_HEAD.format(rounds=ROUNDS)], list(WAYS), set(pairs())
    for name in names:
        rows = json.loads(_file(name).read_text())
        parts += [f"## {name}\n", f"| | {' | '.join(ways)} |", "|---" * (len(ways) + 1) + "|"]
        for setting in SETTINGS:
            found = {
                way: (out, text)
                for own, way, out, text in rows
                if own == setting and (setting, way) in tried
            }
            if found:
                cells = [_shown(found.get(way), refusals) for way in ways]
                parts.append(f"| {setting} | {' | '.join(cells)} |")
        parts.append("")
    parts.append("## Refusals\n")
    parts += [f"{number}. {text}" for text, number in refusals.items()]
    PAGE.write_text("\n".join(parts) + "\n", encoding="utf-8")


def _shown(found: tuple[str, str] | None, refusals: dict[str, int]) -> str:
    if found is None:
        return ""
    outcome, text = found
    if outcome == "equal":
        return "="
    if outcome == "refused":
        return str(refusals.setdefault(text, len(refusals) + 1))
    return f"**different** {text}"


if __name__ == "__main__":
    for method in sys.argv[1:] or METHODS:
        if not _file(method).exists():
            run_method(method)
    present = [method for method in METHODS if _file(method).exists()]
    write_page(present)
    every = [json.loads(_file(method).read_text()) for method in present]
    wrong = sum(line[2] == "different" for lines in every for line in lines)
    print(
        f"{sum(map(len, every))} combinations of {len(present)} methods, {wrong} different; see {PAGE}"
    )
    sys.exit(wrong > 0)
