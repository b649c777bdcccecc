"""What an experiment file may contain, and what is said of a mistake in it. Nothing here needs JAX.

The arguments of a name are those of its function, by type: `signatures.py` reads them.
"""

import collections.abc  # noqa: F401 - types that are given as text name it
import math
import re
import typing
from typing import Annotated, Any, Literal, get_args

import pydantic
from pydantic import BaseModel, ConfigDict, Field, Strict, StrictBool, StrictInt, StrictStr

from holdfast.config.file import ExperimentFile, ExperimentFileError, KeyPath
from holdfast.errors import right_name

StrictNumber = Annotated[float, Strict()]
# Counts are numbers of 32 bits on a device.
Count = Annotated[int, Strict(), Field(ge=1, lt=2**31)]
WholeNumber = Annotated[int, Strict(), Field(gt=-(2**31), lt=2**31)]
_MOST_SEEDS = 10_000
_Seed = Annotated[int, Strict(), Field(ge=0, lt=2**31)]
_Seeds = Annotated[list[_Seed], Field(min_length=1, max_length=_MOST_SEEDS)]
Share = Annotated[float, Strict(), Field(gt=0, lt=1)]
_A_SCHEDULE = '{ schedule = "exponential", value = 0.1, decay = 0.998 }'


def _no_nan(value: float) -> float:
    if math.isnan(value):
        raise ValueError("expected a number")
    return value


SomeNumber = Annotated[float, Strict(), pydantic.AfterValidator(_no_nan)]


def is_schedule(value: Any) -> bool:
    """Whether a table of the file is a schedule over rounds."""
    return isinstance(value, dict) and isinstance(value.get("schedule"), str)


def _is_number(value: Any) -> bool:
    """Whether a device can compute with it."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return plain and math.isfinite(value) and abs(value) < 1e38


def _a_number(value: Any) -> Any:
    """A number, one per client, or a schedule over rounds."""
    numbers = value if isinstance(value, list) else [value]
    if is_schedule(value) or all(_is_number(v) for v in numbers):
        return value
    raise ValueError(
        "expected a number, a list with one number per client, or a schedule over rounds such as "
        f"{_A_SCHEDULE}"
    )


def _a_setting_of_optax(value: Any) -> Any:
    """A number, a switch or a schedule; an optimiser is the same for all clients."""
    if isinstance(value, bool) or _is_number(value) or is_schedule(value):
        return value
    raise ValueError(f"expected a number, true or false, or a schedule such as {_A_SCHEDULE}")


def as_table(value: Any) -> Any:
    """A name alone as the table it stands for."""
    if isinstance(value, str):
        return {"name": value}
    if isinstance(value, dict) and isinstance(value.get("name"), str):
        return value
    raise ValueError('expected a name in quotes or a table such as { name = "...", ... }')


def _prefixes(value: Any) -> Any:
    words = [value] if isinstance(value, str) else value
    if isinstance(words, list) and words and all(isinstance(w, str) for w in words):
        return words
    raise ValueError(
        'expected how names of parameters begin, such as "classifier", ["dense_1", "classifier"], or '
        '"!classifier" for all others'
    )


_LONGEST_TEXT = 200  # letters of a label; a table must have room for it


def _a_label(value: Any) -> Any:
    """Text that tables show."""
    if not isinstance(value, str):
        raise ValueError("expected text in quotes")
    if not value.strip() or len(value) > _LONGEST_TEXT or not value.isprintable():
        raise ValueError(f"expected 1 to {_LONGEST_TEXT} letters that can be printed, in one line")
    return value


def _a_folder_name(value: Any) -> Any:
    """Text that is the name of one folder, below the one it is put in, on any file system."""
    if not isinstance(value, str) or not re.fullmatch(r"\w[\w .,=+()-]{0,98}[\w)]|\w", value):
        raise ValueError(
            "expected a name for a folder in runs/: at most 100 letters, digits, spaces and any of _-.,=+(), "
            "a letter or digit first; --out says where else to write"
        )
    return value


def _a_change(value: Any) -> Any:
    if isinstance(value, bool | dict):
        return value
    raise ValueError("expected true or false, or a table such as { flip = 0.5, crop = 4 }")


Label = Annotated[str, pydantic.BeforeValidator(_a_label)]
FolderName = Annotated[str, pydantic.BeforeValidator(_a_folder_name)]
Augment = Annotated[Any, pydantic.BeforeValidator(_a_change)]
Number = Annotated[Any, pydantic.BeforeValidator(_a_number)]
OPTAX = Annotated[Any, pydantic.BeforeValidator(_a_setting_of_optax)]
Table = Annotated[Any, pydantic.BeforeValidator(as_table)]
Prefixes = Annotated[Any, pydantic.BeforeValidator(_prefixes)]

FROM_DATA = ("classes", "vocabulary")  # known from the data set unless given
_SECTION = ConfigDict(extra="forbid")


def _adapt(value: Any) -> Any:
    """Local steps that clients take before they use a model: a switch, or what differs from [local]."""
    if isinstance(value, bool | dict):
        return value
    raise ValueError("expected true, false, or local steps such as { steps = 5 }")


Adapt = Annotated[Any, pydantic.BeforeValidator(_adapt)]


class NamedTestSet(BaseModel):
    """Another data set to measure the server's model on."""

    model_config = _SECTION
    name: StrictStr  # stands before what is measured on it
    data: Table
    part: typing.Literal["test", "train"] = "test"
    population: StrictStr | None = None  # for whose loss and metrics, where there are several


class Evaluate(BaseModel):
    """What is measured, besides the server's model on the test set."""

    model_config = _SECTION
    every: Count = 1
    train: StrictBool = False  # the server's model on all clients' training data
    average: StrictBool = False  # the average of every client's latest model, as FedDyn reports
    active: StrictBool = False  # the average of the models of the round's clients
    personal: StrictBool | None = None  # every client's own model on test data like its own
    adapt: Adapt | None = None  # clients' own models are taken after local steps, of every method
    validation: Share | None = None  # of every client's training examples, to choose by
    patience: Count | None = None  # evaluations without a better validation metric that end a run
    keep: Literal["best", "last"] | None = None  # the round that a run's results are of
    choose_by: StrictStr | None = (
        None  # the validation metric; that of what is compared unless given
    )
    metrics: list[Table] = []  # metrics of the whole test set, by name or as file.py:function
    test: list[NamedTestSet] = []
    also: list[Table] = []  # any evaluator by its name


class ConformalSection(BaseModel):
    """Prediction sets or intervals: what they are calibrated with, and what they promise."""

    model_config = _SECTION
    share: Share  # of the test examples, to calibrate with; these are not tested on
    kappa: Share = 0.1  # of rows whose label may be outside its set
    score: Literal["lac", "aps", "raps", "residual"] = "lac"
    by: Literal["server", "clients", "each client"] = "server"  # who calibrates
    bins: Count = 1000  # cells of a client's histogram
    largest: StrictNumber | None = None  # error of a number that histograms tell from larger ones
    penalty: StrictNumber = 0.01  # of raps
    k_reg: Annotated[int, Strict(), Field(ge=0)] = 5  # of raps: labels that cost no penalty
    randomised: StrictBool = True  # of aps and raps
    every: Count | None = None  # rounds between measurements; that of [evaluate] unless given
    seed: Annotated[int, Strict(), Field(ge=0)] = 0


_Above = Annotated[float, Strict(), Field(gt=0)]


class QuantileSection(BaseModel):
    """A clip that follows a quantile of the norms of replies."""

    model_config = _SECTION
    target: Share = 0.5
    rate: _Above = 0.2
    noise: _Above | None = None  # of the count


class CorrelatedSection(BaseModel):
    """Noise that later rounds take back in part, for cohorts by a schedule."""

    model_config = _SECTION
    bands: Count | None = None  # rounds it is correlated over
    separation: Count | None = None  # rounds between two of any client, checked


class PrivacySection(BaseModel):
    """Noise in what the server makes of replies, in every reply or in every local step, and the budget: of
    `hf.privacy.Gaussian`, `LocalGaussian` and `ExampleLevel`."""

    model_config = _SECTION
    unit: Literal["client", "example"] = "client"  # what is protected
    noise: Literal["central", "local"] = "central"  # the server's, or each client's own
    clip: _Above
    delta: Share
    epsilon: _Above | None = None
    noise_multiplier: _Above | None = None
    rounds: Count | None = None  # that the budget is for; those of the file unless given
    replies: Count | None = None  # of one client that it is for, with local noise
    max_examples: _Above | None = None
    mean_examples: _Above | None = None
    accountant: Literal["pld", "rdp"] | None = None
    secret: StrictStr | None = None  # a file of random bytes
    quantile: QuantileSection | None = None
    correlated: CorrelatedSection | None = None


class MetricSection(BaseModel):
    """A metric by name, or somebody's own function of labels and predictions."""

    model_config = _SECTION
    name: StrictStr
    greater_is_better: StrictBool | None = None  # of a function that does not say so itself


class Checkpoints(BaseModel):
    """How often a run is saved."""

    model_config = _SECTION
    every: Count = 10
    keep: Count = 2


class EngineSection(BaseModel):
    """How a round is computed; chosen by the machine and the model unless given."""

    model_config = _SECTION
    devices: Count | None = None
    width: Count | None = None  # clients that a device works on at a time


class StorageSection(BaseModel):
    """How much memory clients' states and examples may take, and where states go beyond it."""

    model_config = _SECTION
    memory: StrictInt | StrictStr | None = None
    device: StrictInt | StrictStr | None = None
    folder: StrictStr | None = None
    personal: StrictInt | StrictStr = "1 GB"


class OwnServer(BaseModel):
    """How the server trains and what becomes of its data: what each method may have for itself."""

    model_config = _SECTION
    # Rounds of its own before the first one, or a table with `rounds` and keys of [local].
    pretrain: Annotated[int, Strict(), Field(ge=0)] | dict[str, Any] | None = None
    data_sharing: StrictBool | None = None  # its examples are appended to every client's
    gradient_batch_size: Count | None = None
    local: dict[str, Any] | None = None


class ServerSection(OwnServer):
    """What the server has of its own: give one of the first six."""

    examples: Count | None = None  # so many of the training examples, which no client has then
    share: Share | None = None  # the same as a share of them
    owners: Count | None = None  # all training examples of so many owners, who are no clients then
    clients: Count | None = None  # so many clients send it `each` of their examples
    data: Table | None = None  # a data set of its own
    loss: Table | None = None  # a loss of the parameters alone
    each: Count | None = None
    # For whose loss its data is, and whose data it takes, where there are several populations.
    population: StrictStr | None = None
    balance: StrictBool = False  # rare classes get altered copies of their images
    seed: Annotated[int, Strict(), Field(ge=0)] = 0


class PopulationSection(BaseModel):
    """One of several populations: what it has of its own; all else is the file's."""

    model_config = _SECTION
    name: Label | None = None
    weight: Annotated[float, Strict(), Field(gt=0)] = 1.0  # of its mean loss in the objective
    data: Table | None = None
    partition: Table | None = None
    model: Table | None = None
    cohort: Table | None = None
    local: dict[str, Any] | None = None


class FileSchema(BaseModel):
    """The file as a whole; sections that name something are checked by what they name."""

    model_config = _SECTION
    name: FolderName | None = None
    rounds: Count
    seeds: Annotated[int, Strict(), Field(ge=1, le=_MOST_SEEDS)] | _Seeds = 1
    target: StrictNumber | None = None
    metric: StrictStr | None = None
    window: Count = 1  # the target is reached when the mean of so many evaluations is
    select: StrictBool = False
    data: Table
    partition: Table
    model: Table
    local: dict[str, Any]
    cohort: Table = {"name": "everyone"}
    evaluate: Evaluate = Evaluate()
    conformal: ConformalSection | None = None
    privacy: PrivacySection | None = None
    checkpoint: Checkpoints = Checkpoints()
    engine: EngineSection | None = None
    storage: StorageSection = StorageSection()
    server: ServerSection | None = None
    attack: Table | None = None
    population: list[PopulationSection] = []
    sweep: dict[str, Any] = {}
    algorithm: Annotated[list[Table], Field(min_length=1)]


class AlsoAlgorithm(BaseModel):
    """What an entry of `[[algorithm]]` may have besides the arguments of its method."""

    label: Label | None = None
    wire: Table | None = None
    aggregate: Table | None = None
    local: dict[str, Any] | None = None
    server: OwnServer | None = None
    adaptive_clip: dict[str, Any] | None = None
    adapt: Adapt | None = None  # clients' own models are taken after local steps
    # FLIX from the one-shot average, and with the step that its constants give: `hf.flix.by_theory`.
    start_at: Literal["average"] | None = None
    step_size: Literal["theory"] | None = None


class AlsoData(BaseModel):
    """What `[data]` may have besides the arguments of its loader."""

    only_classes: Count | None = None  # examples of the first so many labels
    train_labels: list[StrictInt] | None = None  # training examples of these labels; test ones stay
    only_examples: Count | None = None  # so many training examples, for a quick trial
    only_owners: Count | None = None  # training examples of so many owners


class AlsoPartition(BaseModel):
    """What `[partition]` may have besides the arguments of its function."""

    max_examples: Count | None = None  # of a client, which keeps its first ones
    # The study on several draws: so many, or those with these seeds.
    repeats: Annotated[int, Strict(), Field(ge=1, le=_MOST_SEEDS)] | None = None
    splits: _Seeds | None = None


class AlsoModel(BaseModel):
    """What `[model]` may have besides the arguments of its function."""

    # Training images flipped, cropped and turned at random: true, or a table of how.
    augment: Augment | None = None


class AlsoEvaluator(BaseModel):
    """What an entry of `[[evaluate.also]]` may have besides the arguments of its evaluator."""

    on: StrictStr | None = None  # test, train, or the name of a test set
    label: StrictStr | None = None  # stands before the names of what is measured


ALSO: dict[str, type[BaseModel]] = {
    "evaluator": AlsoEvaluator,
    "algorithm": AlsoAlgorithm,
    "data": AlsoData,
    "partition": AlsoPartition,
    "model": AlsoModel,
}


def model(fields: dict[str, Any], also: type[BaseModel] | None = None) -> type[BaseModel]:
    """A schema of a table that names something: its arguments, each with its type and whether it must be
    there. A type may be text, which is read as if it stood in this file."""
    given: dict[str, Any] = {"name": (StrictStr, ...)}
    for name, (kind, required) in fields.items():
        # Defaults stay with the function: what is not in the file is not passed.
        if isinstance(kind, str):
            given[name] = (kind, ...) if required else (f"{kind} | None", None)
        else:
            given[name] = (kind, ...) if required else (kind | None, None)
    base = also or BaseModel
    made = pydantic.create_model("Arguments", __base__=base, __module__=__name__, **given)
    made.model_config = _SECTION
    made.model_rebuild(force=True)
    return made


def check(file: ExperimentFile, at: KeyPath, schema: type[BaseModel], table: Any) -> BaseModel:
    """A table in the shape of its schema; the first mistake is raised with its line."""
    try:
        return schema.model_validate(table)
    except pydantic.ValidationError as error:
        problems = sorted(error.errors(), key=_plainest_first)
        raise _explain(file, at, schema, problems[0], table) from None


def _plainest_first(problem: Any) -> tuple[int, int]:
    """Wrong keys before wrong values; of what a union says, what went farthest into the value."""
    plain = ("extra_forbidden", "missing")
    kind = problem["type"]
    return plain.index(kind) if kind in plain else len(plain), -len(problem["loc"])


_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text in quotes",
    "list_type": "a list in brackets",
    "dict_type": "a table",
    "model_type": "a table",
    "tuple_type": "a list in brackets",
    "too_short": "at least one entry",
    "too_long": "at most {max_length} entries",
    "less_than_equal": "at most {le}",
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than": "less than {lt}",
    "literal_error": "{expected}",
}


def _explain(
    file: ExperimentFile, at: KeyPath, schema: type[BaseModel], problem: Any, table: Any
) -> ExperimentFileError:
    known = set(schema.model_fields)
    inside = _written(table, problem["loc"], missing=problem["type"] == "missing")
    location = (*at, *inside)
    key, where = str(inside[-1]) if inside else "", _section(at, inside)
    given = _show(problem["input"])
    if problem["type"] == "extra_forbidden":
        if len(inside) > 1:
            field: Any = schema.model_fields.get(str(inside[0]))
            known = set(getattr(_model_of(field), "model_fields", known))
        return file.error(location, f"unknown key `{key}`{where}; {right_name(key, sorted(known))}")
    if problem["type"] == "missing":
        return file.error(location[:-1], f"`{key}` is missing{where}; {_example(key)}")
    if problem["type"] == "value_error":
        why = str(problem["ctx"]["error"])
        return file.error(location, f"`{key}` is {given}{where}; {why}.")
    expected = _EXPECTED.get(problem["type"], problem["msg"])
    expected = expected.format(**problem.get("ctx", {}))
    return file.error(location, f"`{key}` is {given}{where}; expected {expected}.")


def _written(table: Any, path: KeyPath, missing: bool) -> KeyPath:
    """The path of a mistake in the file; members of a union leave their names in it too."""
    found: KeyPath = ()
    for i, key in enumerate(path):
        has = (isinstance(table, dict) and key in table) or (
            isinstance(table, list) and isinstance(key, int) and key < len(table)
        )
        if has:
            table = table[key]
        if has or (missing and i == len(path) - 1):
            found = (*found, key)
    return found


def _model_of(field: Any) -> Any:
    if field is None:
        return None
    options = get_args(field.annotation) or (field.annotation,)
    return next((o for o in options if isinstance(o, type) and issubclass(o, BaseModel)), None)


def _section(at: KeyPath, inside: KeyPath) -> str:
    names = [str(k) for k in (*at, *inside[:-1]) if isinstance(k, str)]
    return f" in [{'.'.join(names)}]" if names else ""


def _show(value: Any) -> str:
    text = (
        f'"{value}"'
        if isinstance(value, str)
        else str(value).lower()
        if value
        in (
            True,
            False,
        )
        else repr(value)
    )
    return text if len(text) <= 60 else f"{text[:57]}..."


_EXAMPLES = {
    "rounds": "rounds = 100",
    "data": '[data] with name = "digits"',
    "partition": '[partition] with name = "dirichlet", clients = 50, concentration = 0.3',
    "model": '[model] with name = "mlp", hidden = [64]',
    "local": "[local] with learning_rate = 0.1, epochs = 5, batch_size = 20",
    "algorithm": '[[algorithm]] with name = "fedavg"',
    "learning_rate": "learning_rate = 0.1",
    "name": 'name = "..."; `holdfast list` shows all names',
    "clients": "clients = 50",
}


def _example(key: str) -> str:
    return f"add {_EXAMPLES[key]}." if key in _EXAMPLES else f"add {key} = ..."
