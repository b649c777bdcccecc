"""Changes that a hurried or hostile hand could make in an experiment file or on the command line."""

import copy
import dataclasses
import random
import re
import tomllib
from typing import Any

import tomlkit

from holdfast.config import catalogue

# Models that take seconds to trace; most files get a small one instead, which makes the same mistakes.
SLOW = ("cnn", "cnn_fsl_cifar10", "cnn_fsl_emnist", "resnet8", "vgg11", "lstm", "gru")

# Functions of somebody's own, good and bad.
OWN = """
import numpy as np
import holdfast as hf

def raises(**_):
    raise KeyError("own [/x]\\nmessage")

def none(): pass
def number(x: float = 1.0): return x
def leaves(): raise SystemExit(7)
def endless(): return endless()
def algorithm(mu: hf.Hyper = 0.1): return hf.algorithms.fedprox(mu)
def data(): return hf.data.digits()
def unknown_type(x: "Nothing" = 1): return x
def takes_array(x: np.ndarray): return x
def cohort(): return Cohort()
def no_draw(): return Cohort(None)
def far_draw(): return Cohort([10**9])
def model(classes: int): return hf.models.softmax_regression(classes)
def schedule(value: float = 0.1): return lambda t: value
def bad_schedule(): return lambda t: None
def raising_schedule(): return lambda t: 1 / 0

class Cohort:
    steady = True
    def __init__(self, drawn=(0,)): self.drawn = drawn
    def check(self, able, population): pass
    def draw(self, t, able, rng): return None if self.drawn is None else np.asarray(self.drawn)

class Measure:
    every = 1
    keeps_last_models = False
    def check(self, model, params, clients): pass
    def __call__(self, view): return {"mine": 1.0}

class RaisingCheck(Measure):
    def check(self, model, params, clients): raise RuntimeError

class RaisingCall(Measure):
    def __call__(self, view): raise RuntimeError("late")

class NoneCall(Measure):
    def __call__(self, view): return None

here = 3
"""
OWN_NAMES = [
    f"own.py:{a or b}" for a, b in re.findall(r"^(?:def|class) (\w+)|^(here)", OWN, re.MULTILINE)
]
# fmt: off
NAMES = [
    *(name for known in catalogue.KINDS.values() for name in known),
    *OWN_NAMES,
    "broken.py:f", "absent.py:f", "own.py:absent", "own.py:", ":", "::", "", "builtins:dict", "os:system",
    "holdfast:simulate", "pip._internal.cli.main:main", "../own.py:none", "/etc/passwd:f", "mnits", "[/x]",
]
NUMBERS = [
    0, 1, 2, 3, 7, 100, 10**6, -1, -(2**31), 2**31 - 1, 2**31, 2**32, 2**53, 2**63, 2**64, 10**30,
    0.5, -0.5, 1.5, 1e-300, 1e300, 1e-9, -0.0, float("nan"), float("inf"), float("-inf"),
]
TEXTS = [
    "", " ", "x" * 300, "a\0b", "a\nb", "\x1b[31mred", "1 GB", "a b", "é", "日本語", "[/x]", "[bold]", "..",
    "../../x", "/tmp/x", "~", "%s", "{}", "{0}", "$HOME", "a.b", "nan", "1", "true", "\u202e", "😀", "-",
    "digits", "fedavg", "test", "train", "accuracy", "loss", "classifier", "!", "hidden", "theory", "average",
]
_LETTERS = [b"\0", b"\x1b", b'"', b"[", b"]", b"=", b"\xff", b"\xc3", b"'''", b"{", b"\\", b"\n"]
_ODD = [
    "", "x" * 5000, "a" * 400 + "=1", "name=\0", "\udcff=1", "=", "a=", "=1", ".=1", "..=1", "algorithm..=1",
    "algorithm.0=1", "algorithm.99.name=x", "algorithm=1", "data=mnits", "data=[1]", "local=5", "sweep.x=[1]",
    "a.b.c.d=1", "name=../../x", "name=/tmp/x", "seeds=0", "rounds=nan", "target=nan", "data.name.x=1",
    "evaluate.also.0.name=x", "algorithm.fedavg=[]", "local.x=[[[[", "data={",
]
# fmt: on


@dataclasses.dataclass(frozen=True)
class Case:
    """One mutated file, and what is set on the command line."""

    number: int
    source: str
    content: bytes
    changes: tuple[str, ...]


EVERYTHING = """
name = "everything"
rounds = 2
seeds = [1, 2]
metric = "personal_accuracy"
target = 0.9
window = 1
select = false
[data]
name = "digits"
only_classes = 8
only_examples = 300
[partition]
name = "dirichlet"
clients = 6
concentration = 0.5
max_examples = 40
[model]
name = "mlp"
hidden = [4]
init = "torch"
[local]
learning_rate = { schedule = "exponential", value = 0.1, decay = 0.99 }
epochs = 1
batch_size = 16
clip = 1.0
weight_decay = 1e-4
momentum = 0.9
momentum_on = "!classifier"
[cohort]
name = "fixed"
size = 3
[evaluate]
personal = true
train = true
average = true
adapt = { steps = 1 }
every = 1
[[evaluate.test]]
name = "seen"
data = { name = "digits", train_labels = [1, 2] }
part = "train"
[[evaluate.also]]
name = "dissimilarity"
every = 2
[[evaluate.also]]
name = "own.py:Measure"
[checkpoint]
every = 1
keep = 1
[engine]
width = 1
[storage]
memory = "1 GB"
[server]
examples = 30
seed = 1
local = { learning_rate = 0.1, steps = 1 }
[sweep]
how = "grid"
"local.learning_rate" = [0.1, 0.2]
[[algorithm]]
name = "fedavg_plus"
gamma = 0.5
[[algorithm]]
name = "fedavg"
label = "bits"
wire = { name = "Compressed", compressor = { name = "RandK", share = 0.5 } }
[[algorithm]]
name = "own.py:algorithm"
mu = 0.2
local = { learning_rate = 0.05 }
"""


class Mutator:
    """Changes to the values of a file, to its text, and to the command line, by one generator."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def case(self, number: int, known: dict[str, dict[str, Any]]) -> Case:
        """The next one."""
        source = self.rng.choice(list(known))
        values = self._small(copy.deepcopy(known[source]))
        if (
            self.rng.random() < 0.5
        ):  # one plausible value, which the types of the schema let through
            self._tune(values)
            return Case(number, source, tomlkit.dumps(values).encode(), ())
        for _ in range(self.rng.choice([0, 1, 1, 1, 2, 3])):
            self._change(values)
        try:
            text = tomlkit.dumps(values)
        except (TypeError, ValueError):  # what TOML has no letters for
            text = tomlkit.dumps(self._small(copy.deepcopy(known[source])))
        content = text.encode("utf-8", "surrogatepass")
        if self.rng.random() < 0.15:
            content = self._garble(content)
        changes = []
        if self.rng.random() < 0.45:
            changes = [self._set(values) for _ in range(self.rng.choice([1, 1, 2]))]
        return Case(number, source, content, tuple(changes))

    def _tune(self, values: dict[str, Any]) -> None:
        places = self._places(values)
        how = self.rng.randrange(3)
        if how == 0:
            leaves = [(c, k) for c, k in places if type(c[k]) in (int, float, str, bool, list)]
            here, key = self.rng.choice(leaves)
            here[key] = self._like(here[key])
        elif how == 1:
            tables = [c[k] for c, k in places if isinstance(c[k], dict)]
            self._argument(tables, NUMBERS)
        else:
            named = [(c, k) for c, k in places if k == "name" and isinstance(c[k], str)]
            here, key = self.rng.choice(named)
            kinds = [known for known in catalogue.KINDS.values() if here[key] in known]
            here[key] = self.rng.choice([*(kinds[0] if kinds else ()), *OWN_NAMES])

    def _small(self, values: dict[str, Any]) -> dict[str, Any]:
        """A file with few methods of which everything is quick."""
        entries = values["algorithm"]
        values["algorithm"] = self.rng.sample(entries, min(len(entries), self.rng.choice([1, 2])))
        values["rounds"] = min(values["rounds"], 3)
        if values.get("window", 1) > 3:
            values["window"] = 1
        if isinstance(values.get("sweep"), dict):
            values["sweep"] = {
                k: v[:2] if isinstance(v, list) else v for k, v in values["sweep"].items()
            }
        for table in (values.get("evaluate", {}), *values.get("evaluate", {}).get("also", ())):
            if table.get("every", 1) > 3:
                table["every"] = 1
        model = values["model"]
        if isinstance(model, dict) and model["name"] in SLOW and self.rng.random() < 0.95:
            values["model"] = {"name": "mlp", "hidden": [4]}
        return values

    def _places(self, here: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, Any]]:
        """Every (container, key)."""
        items = here.items() if isinstance(here, dict) else enumerate(here)
        found = []
        for key, value in items:
            found.append((here, key))
            if isinstance(value, dict | list):
                found += self._places(value)
        return found

    def _change(self, values: dict[str, Any]) -> None:
        places = self._places(values)
        if not places:
            return
        here, key = self.rng.choice(places)
        tables = [values, *(c[k] for c, k in places if isinstance(c[k], dict))]
        how = self.rng.randrange(11)
        if how <= 2:
            here[key] = self._like(here[key]) if self.rng.random() < 0.6 else self._value()
        elif how == 3 and isinstance(here, dict):
            here[self._typo(key)] = here.pop(key)
        elif how == 4:
            del here[key]
        elif how == 5:
            here[key] = self.rng.choice(
                [
                    [here[key]],
                    {"name": here[key]},
                    {key: here[key]} if isinstance(key, str) else [[here[key]]],
                ]
            )
        elif how == 6:
            named = [t for t in tables if isinstance(t.get("name"), str)]
            if named:
                table = self.rng.choice(named)
                table["name"] = self.rng.choice([self._typo(table["name"]), self.rng.choice(NAMES)])
        elif how == 7:
            other, there = self.rng.choice(places)
            here[key] = copy.deepcopy(other[there])
        elif how == 8:
            self._argument(tables)
        elif how == 9 and isinstance(here, list):
            here.append(copy.deepcopy(here[key]))
        else:
            table = self.rng.choice(tables)
            table[self.rng.choice(self._keys(places))] = self._value()

    def _keys(self, places: list[tuple[Any, Any]]) -> list[str]:
        return [k for _, k in places if isinstance(k, str)] + ["name", "label", "", "x", "schedule"]

    def _argument(self, tables: list[dict[str, Any]], values: list[Any] | None = None) -> None:
        """An argument that what a table names does have."""
        functions = {n: f for known in catalogue.KINDS.values() for n, f in known.items()}
        named = [t for t in tables if isinstance(t.get("name"), str) and t["name"] in functions]
        if named:
            table = self.rng.choice(named)
            arguments = list(catalogue.settings(functions[table["name"]]))
            if arguments:
                value = self.rng.choice(values) if values else self._value()
                table[self.rng.choice(arguments)] = value

    def _like(self, value: Any) -> Any:
        """Another value of about the same type."""
        if isinstance(value, bool):
            return not value
        if isinstance(value, int | float):
            return self.rng.choice([*NUMBERS, -value, value * 2, value / 2, float(value)])
        if isinstance(value, str):
            return self.rng.choice([self._typo(value), self.rng.choice(TEXTS + NAMES)])
        if isinstance(value, list):
            return self.rng.choice(
                [[], value * 2, value[:1], [self._value()], [*value, self._value()]]
            )
        if isinstance(value, dict):
            return {k: v for k, v in value.items() if self.rng.random() < 0.5}
        return self._value()

    def _value(self) -> Any:
        """Anything TOML can write."""
        kind = self.rng.randrange(9)
        if kind <= 2:
            return self.rng.choice(NUMBERS)
        if kind <= 4:
            return self.rng.choice(TEXTS + NAMES)
        if kind == 5:
            return self.rng.choice([True, False])
        if kind == 6:
            return [self._value() for _ in range(self.rng.randrange(3))]
        if kind == 7:
            keys = ["name", "schedule", "value", "x", "rounds", "steps", "learning_rate"]
            return {self.rng.choice(keys): self._value() for _ in range(self.rng.randrange(3))}
        return self.rng.choice(
            [
                tomllib.loads("x = 1979-05-27T07:32:00Z")["x"],
                tomllib.loads("x = 07:32:00")["x"],
                [[[[]]]],
            ]
        )

    def _typo(self, word: str) -> str:
        if not word:
            return "x"
        i = self.rng.randrange(len(word))
        return self.rng.choice(
            [
                word[:i] + word[i + 1 :],
                word[: i + 1] + word[i:],
                word[:i] + self.rng.choice("abz_- .é[\0/") + word[i + 1 :],
                word[:i] + word[i : i + 2][::-1] + word[i + 2 :],
                word.upper(),
            ]
        )

    def _garble(self, content: bytes) -> bytes:
        """The text itself: lines, letters and bytes."""
        lines = content.split(b"\n")
        i = self.rng.randrange(len(lines))
        how = self.rng.randrange(8)
        if how == 0:
            return b"\n".join(lines[:i] + lines[i + 1 :])
        if how == 1:
            return b"\n".join(lines[: i + 1] + lines[i:])
        if how == 2:
            return content[: self.rng.randrange(len(content) + 1)]
        if how == 3:
            deep = self.rng.choice([10, 200, 100_000])
            return content + b"\nx = " + b"[" * deep + b"]" * deep
        if how == 4:
            return (
                self.rng.choice([b"\xef\xbb\xbf", b"\xff\xfe", b"\0", b"\r\n", b"\xc3("]) + content
            )
        if how == 5:
            return content.replace(b"\n", b"\r\n")
        at = self.rng.randrange(len(content) + 1)
        letter = self.rng.choice(_LETTERS)
        return content[:at] + letter + content[at:]

    def _set(self, values: dict[str, Any]) -> str:
        """A word after `--set`."""
        if self.rng.random() < 0.15:
            return self.rng.choice(_ODD)
        keys: list[str] = []
        here: Any = values
        while isinstance(here, dict | list) and here and (not keys or self.rng.random() < 0.7):
            key = self.rng.choice(list(here) if isinstance(here, dict) else range(len(here)))
            here = here[key]
            keys.append(str(key))
        if keys and self.rng.random() < 0.3:
            keys[-1] = self._typo(keys[-1])
        value = self._value() if self.rng.random() < 0.6 else self._like(here) if keys else 1
        try:
            written = tomlkit.item(value).as_string() if self.rng.random() < 0.7 else str(value)
        except (TypeError, ValueError):
            written = str(value)
        return f"{'.'.join(keys)}={written}"
