"""Everything that has a name: what `holdfast list` shows and an experiment file may ask for."""

import dataclasses
import inspect
import itertools
import re
import textwrap
from collections.abc import Callable
from typing import Any

import optax

from holdfast import (
    aggregates,
    algorithms,
    attacks,
    cohorts,
    data,
    diagnose,
    evaluate,
    models,
    rules,
    schedules,
    solvers,
    wires,
)
from holdfast.data import partition
from holdfast.errors import HoldfastError, did_you_mean
from holdfast.metrics.by_name import OF_SETS, named
from holdfast.metrics.metric import Metric

# Arguments that come from elsewhere in the experiment, never from the file.
_GIVEN = frozenset({"data", "labels"})
_PYTHON_ONLY = frozenset(
    {
        "by",
        "classifier",
        "augmented",
        "populations",
        "initialised",
        "regularised",
        "class_weighted",
        "mixture",
    }
)


def _of(module: Any, *names: str) -> dict[str, Callable[..., Any]]:
    return {name: getattr(module, name) for name in (names or module.__all__)}


def _returning(module: Any, result: str) -> dict[str, Callable[..., Any]]:
    """Functions that make something from plain values; others take a Python object first."""
    names = [n for n in module.__all__ if not n.startswith("from_") and n not in _PYTHON_ONLY]
    found = {n: f for n in names if inspect.isfunction(f := getattr(module, n))}
    return {n: f for n, f in found.items() if _result(f) == result}


def _measuring(*modules: Any) -> dict[str, Callable[..., Any]]:
    """Functions that make an evaluator: those that ask every how many rounds."""
    found = {n: getattr(module, n) for module in modules for n in module.__all__}
    functions = {n: f for n, f in found.items() if inspect.isfunction(f) and n not in _PYTHON_ONLY}
    return {n: f for n, f in functions.items() if "every" in inspect.signature(f).parameters}


def _of_sets() -> dict[str, Callable[..., Any]]:
    """Functions that make a metric of a set, each with what is said of it."""

    def making(name: str) -> Callable[[], Metric]:
        metric = named(name)
        about = inspect.getdoc(metric.of) if inspect.isfunction(metric.of) else None
        up = "Greater" if metric.greater_is_better else "Smaller"

        def make() -> Metric:
            return metric

        make.__name__ = name
        make.__doc__ = (
            f"{about or metric.title[:1].upper() + metric.title[1:] + '.'}\n\n{up} is better."
        )
        return make

    return {name: making(name) for name in (*OF_SETS, "top_5_accuracy")}


def _result(function: Any) -> str:
    return str(getattr(inspect.signature(function).return_annotation, "__name__", ""))


KINDS: dict[str, dict[str, Callable[..., Any]]] = {
    "algorithm": _of(algorithms),
    "data": _returning(data, "Dataset"),
    "partition": _returning(partition, "Clients"),
    "model": _returning(models, "Model"),
    "cohort": _of(cohorts, "everyone", "fixed", "bernoulli", "schedule", "weighted"),
    "schedule": _of(schedules, "constant", "exponential", "cosine", "multi_step"),
    "clip": _of(rules, "AdaptiveClip"),
    "wire": _of(wires, "Compressed", "Diana", "ErrorFeedback", "Clipped", "Downlink"),
    "aggregate": _of(aggregates),
    "attack": _of(attacks, *(n for n in attacks.__all__ if n != "Attack")),
    "compressor": _of(wires, "RandK", "TopK", "Quantise", "Natural", "Sign", "Cast"),
    "solver": _of(solvers, "GradientDescent", "LineSearch", "LBFGS"),
    "loss": _of(models, "spreadout"),
    "evaluator": _measuring(evaluate, diagnose),
    "metric": _of_sets(),
    "optimizer": _of(optax, "sgd", "adam", "adamw", "yogi", "adagrad", "rmsprop", "lion"),
}
TITLES = {
    "algorithm": "Algorithms",
    "data": "Data sets",
    "partition": "Partitions",
    "model": "Models",
    "cohort": "Cohorts",
    "schedule": "Schedules over rounds",
    "clip": "Clipping of updates",
    "wire": "Wires",
    "aggregate": "Means of replies",
    "attack": "Attacks, in simulations",
    "compressor": "Compressors",
    "solver": "Solvers for local optima",
    "loss": "Losses at the server",
    "evaluator": "What is measured",
    "metric": "Metrics of a whole test set",
    "optimizer": "Optimisers (optax)",
}


def find(kind: str, name: str) -> Callable[..., Any]:
    """The function of that name."""
    if name in KINDS[kind]:
        return KINDS[kind][name]
    raise HoldfastError(f"unknown {kind} `{name}`; {did_you_mean(name, KINDS[kind])}")


def settings(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The arguments an experiment file may set."""
    parameters = inspect.signature(function).parameters
    variadic = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return {n: p for n, p in parameters.items() if n not in _GIVEN and p.kind not in variadic}


_MODULES = {
    "data": "hf.data",
    "partition": "hf.data.partition",
    "clip": "hf.rules",
    "compressor": "hf.wires",
    "loss": "hf.models",
    "optimizer": "optax",
}


@dataclasses.dataclass(frozen=True)
class Page:
    """A docstring, taken apart: what `holdfast show` and the documentation are made of."""

    kind: str
    name: str
    title: str  # its first line
    body: str  # everything up to the first heading, without the equation
    equation: str  # LaTeX, without dollars; empty if there is none
    travels: str
    tells: str  # what its messages tell of one client beside an update
    arguments: dict[str, str]
    reduces_to: str
    example: str
    reference: str

    @property
    def signature(self) -> str:
        """What to write in Python."""
        function = KINDS[self.kind][self.name]
        if self.kind == "metric":
            return f'hf.evaluate.on(test, metrics=["{self.name}"])'
        arguments = ", ".join(
            str(p.replace(annotation=inspect.Parameter.empty))
            for p in inspect.signature(function).parameters.values()
        )
        home = _MODULES.get(self.kind, f"hf.{self.kind}s")
        if self.kind == "evaluator":
            home = f"hf.{function.__module__.split('.')[1]}"
        return f"{home}.{self.name}({arguments})"


_HEADINGS = ("Travels", "Tells", "Args", "Reduces to", "Example", "Reference")


def page(kind: str, name: str) -> Page:
    """What a name's docstring says, by section."""
    text = inspect.getdoc(KINDS[kind][name]) or ""
    title, _, rest = text.partition("\n")
    if title and not rest.startswith("\n") and rest:  # a first sentence that runs on
        first, _, rest = text.partition("\n\n")
        title = " ".join(first.split())
    parts = {"": ""}
    heading = ""
    for line in rest.strip("\n").splitlines():
        begun = re.match(rf"({'|'.join(_HEADINGS)}): ?(.*)", line)
        if begun:
            heading, line = begun[1], begun[2]
            parts[heading] = ""
        parts[heading] += line + "\n"
    equations = re.findall(r"\$\$(.+?)\$\$", parts[""], re.DOTALL)
    body = re.sub(r"\$\$.+?\$\$\n?", "", parts[""], flags=re.DOTALL)
    inline = re.search(r"Travels: (.+?)(?:\n\n|\Z)", body, re.DOTALL)
    travels = parts.get("Travels", "") or (inline[1] if inline else "")
    if inline:
        body = body.replace(inline[0], "")
    # A paragraph may follow what travels; it belongs to the body.
    travels, _, more = travels.strip().partition("\n\n")
    body = "\n\n".join(p for p in (body.strip(), more.strip()) if p)
    return Page(
        kind=kind,
        name=name,
        title=title.strip(),
        body=body,
        equation=" \\\\ ".join(" ".join(e.split()) for e in equations),
        travels=" ".join(travels.split()),
        tells=" ".join(parts.get("Tells", "").split()),
        arguments=_arguments(parts.get("Args", "")),
        reduces_to=" ".join(parts.get("Reduces to", "").split()),
        example=textwrap.dedent(parts.get("Example", "")).strip(),
        reference=" ".join(parts.get("Reference", "").split()),
    )


def _arguments(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    name = ""
    indented = itertools.takewhile(lambda line: not line or line[0] == " ", text.splitlines())
    for line in textwrap.dedent("\n".join(indented)).splitlines():
        begun = re.match(r"(\w+): (.*)", line)
        if begun:
            name, line = begun[1], begun[2]
            found[name] = ""
        if name:
            found[name] = f"{found[name]} {line.strip()}".strip()
    return found


def kinds_of(name: str) -> list[str]:
    """The kinds in which a name is known; a sentence with the nearest if it is not."""
    kinds = [kind for kind, known in KINDS.items() if name in known]
    if not kinds:
        everything = [n for known in KINDS.values() for n in known]
        raise HoldfastError(f"nothing is called `{name}`; {_nearest(name, everything)}")
    return kinds


def _nearest(name: str, known: list[str]) -> str:
    hint = did_you_mean(name, known)
    return hint if hint.startswith("did") else "`holdfast list` shows every name."
