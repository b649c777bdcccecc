"""A site's half: its own data, its own state on its own disk, and `client_round`.

A site is a function of a message and its disk: it may be another process for every message.
"""

import dataclasses
import functools
import logging
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import jax

from holdfast.core.round_types import ClientState
from holdfast.data.clients import check_finite, count
from holdfast.deploy import frame, messages
from holdfast.deploy.frame import BadMessageError
from holdfast.deploy.messages import Version
from holdfast.deploy.states import LostStateError, StateVersions
from holdfast.deploy.taking import MODELS, OWN, SETS, TEST, VALIDATION, Taking
from holdfast.deploy.task import Task, shape_of
from holdfast.engine.experiment import Experiment
from holdfast.engine.role import deploys_its_own
from holdfast.engine.saving import described
from holdfast.errors import HoldfastError
from holdfast.evaluate.measuring import totals
from holdfast.evaluate.predictions import of_set
from holdfast.metrics import Metric
from holdfast.metrics.by_name import as_metrics
from holdfast.models.model import Model
from holdfast.record.files import write_whole
from holdfast.record.identity import digest
from holdfast.saved.description import Columns
from holdfast.saved.file import by_name, write
from holdfast.torch.sites import Site as TorchSite
from holdfast.trees import Tree

log = logging.getLogger("holdfast.deploy")
_BEGIN = "begin.message"
_DATA = "data.digest"
_MODEL = "model.safetensors"
# Bytes of a model or broadcast, beyond which a message is not read.
LARGEST = 1 << 36


class RefusedError(HoldfastError):
    """Why a site does not answer, to be told to the server."""


class LostError(RefusedError):
    """The same, where the site has not what the server takes for granted."""


@dataclasses.dataclass(frozen=True, eq=False)
class Site:
    """One client of a deployed experiment, where its data is.

    Args:
        experiment: the experiment that is deployed, of which a site uses the algorithm, the model and the
            local steps; its clients may be any, such as those it was simulated with.
        examples: this site's own training examples; or what `holdfast.torch.site` returned, if PyTorch takes
            the local steps.
        folder: where it keeps what it remembers between rounds; only this site writes there.
        name: what the server knows it by.
        tests: its own held-out examples, on which it measures its model; none unless given.
        validation: others of its own that are held out, to choose rounds by; none unless given.
        algorithms: digests of the algorithms it takes part in; that of the experiment unless given.
        models: the same of models.
        columns: what the model that is kept here at the end says of its inputs and labels.
        by: the model by which it trains, of `holdfast.torch.like`; the experiment's own unless given.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np, tempfile
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> experiment = hf.Experiment(
        ...     hf.algorithms.fedavg(),
        ...     hf.models.least_squares(intercept=False),
        ...     hf.data.partition.in_order(data, clients=2),
        ...     hf.Local(learning_rate=0.1, steps=10),
        ... )
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sites = [
        ...         hf.deploy.Site(experiment, mine, f"{folder}/{name}", name)
        ...         for name, mine in zip(("0", "1"), experiment.clients)
        ...     ]
        ...     run = hf.deploy.run(experiment, hf.deploy.InProcess(sites), rounds=20)
        >>> print(f"{run.params['weights'].item():.2f}")
        1.60
    """

    experiment: Experiment
    examples: Tree
    folder: str | Path
    name: str
    tests: Tree = None
    validation: Tree = None
    algorithms: Sequence[str] | None = None
    models: Sequence[str] | None = None
    columns: Columns | None = None
    by: Model | None = None

    def __post_init__(self) -> None:
        # What stands for a frozen field is set once, here.
        if isinstance(self.examples, TorchSite):
            object.__setattr__(self, "by", self.examples.model)
            object.__setattr__(self, "examples", self.examples.examples)
        if not messages.is_name(self.name):
            raise HoldfastError(
                f"Site: name={self.name!r}; give a name of 1 to 200 characters, in one line.",
                about=("name",),
            )
        if count(self.examples) == 0:
            raise HoldfastError("Site: it has no examples; give at least one.", about=("data",))
        check_finite(self.examples, f"data of site {self.name}")
        self.experiment.model.check_examples(self.examples, "Site", ("data",))
        for what, held_out in (("tests", self.tests), ("validation", self.validation)):
            if held_out is not None:
                check_finite(held_out, f"held-out data of site {self.name}")
                self.experiment.model.check_examples(held_out, "Site", (what,))

    @functools.cached_property
    def task(self) -> Task:
        """What it takes part in."""
        return Task.of(self.experiment)

    @functools.cached_property
    def _data(self) -> str:
        return digest(self.examples)

    @functools.cached_property
    def _on_device(self) -> Tree:
        return jax.device_put(self.examples)

    def answer(self, data: bytes) -> bytes:
        """The answer to a message; what is wrong with one is said in the answer, never raised."""
        return answered(self.answer_to, data)

    def answer_to(self, data: bytes, asked: str) -> messages.Message:
        """The answer, or why there is none."""
        found = frame.unpack(data, LARGEST)
        kind = found.header.get("kind")
        if kind == "ask":
            return self._facts(messages.Ask.read(found))
        if kind == "begin":
            return self._begin(messages.Begin.read(found), data)
        if kind == "round":
            return self._round(messages.Round.read(found), asked)
        if kind == "evaluate":
            return self._evaluate(messages.Evaluate.read(found), asked)
        if kind == "keep":
            return self._keep(messages.Keep.read(found), asked)
        raise BadMessageError("it is none that a site answers")

    def _facts(self, _: messages.Ask) -> messages.Facts:
        task = self.task
        return messages.Facts(
            name=self.name,
            examples=count(self.examples),
            shape=shape_of(self.examples),
            algorithm=task.algorithm_digest,
            model=task.model_digest,
        )

    def _begin(self, begin: messages.Begin, data: bytes) -> messages.Begun:
        self._check_allowed(begin)
        if begin.examples != count(self.examples):
            raise RefusedError(
                f"it has {count(self.examples)} examples, and the run began with {begin.examples}"
            )
        self._take(begin)  # refuses a model of other shapes
        folder = self._folder(begin.run)
        folder.mkdir(parents=True, exist_ok=True)
        known = folder / _BEGIN
        if known.exists() and known.read_bytes() != data:
            raise RefusedError("the run began otherwise at this site")
        mine, noted = self._data, folder / _DATA
        if noted.exists() and noted.read_text() != mine:
            raise RefusedError("its data has changed since the run began")
        write_whole(noted, mine)
        write_whole(known, data)
        return messages.Begun(begin.run)

    def _check_allowed(self, begin: messages.Begin) -> None:
        task = self.task
        for what, said, own, allowed in (
            ("algorithm", begin.algorithm, task.algorithm_digest, self.algorithms),
            ("model", begin.model, task.model_digest, self.models),
            ("local", begin.local, task.local_digest, None),
        ):
            if said != own:
                raise RefusedError(
                    f"the server's {what} is {said[:12]}, this site's {own[:12]}: both must have the same"
                )
            if allowed is not None and own not in allowed:
                raise RefusedError(f"{what} {own} is not on this site's list of allowed ones")

    def _take(self, begin: messages.Begin) -> Taking:
        return Taking(begin, self.task, self.examples, self._on_device, self.by)

    def _folder(self, run: str) -> Path:
        # `run` is 32 hexadecimal digits, or the message was refused.
        return Path(self.folder) / run

    def _taking(self, run: str) -> "Taking":
        """The run as it began at this site."""
        begin = begun_in(Path(self.folder), run)
        try:
            noted = (self._folder(run) / _DATA).read_text()
        except FileNotFoundError:
            raise LostError("this site does not know the run") from None
        if noted != self._data:
            raise RefusedError("its data has changed since the run began")
        self._check_allowed(begin)
        return self._take(begin)

    def _found(
        self, message: messages.Round | messages.Evaluate | messages.Keep
    ) -> tuple["Taking", StateVersions, ClientState]:
        """The run, and the state that a message speaks of."""
        taking = self._taking(message.run)
        states = StateVersions(self._folder(message.run))
        try:
            return taking, states, taking.state(states, message.base)
        except LostStateError as error:
            raise LostError(str(error)) from None

    def _evaluate(self, message: messages.Evaluate, asked: str) -> messages.Measured:
        for what, said, known in (
            ("models", message.models, MODELS),
            ("sets", message.sets, SETS),
        ):
            if said not in known:
                raise BadMessageError(f"`{what}` of its header is none of {', '.join(known)}")
        try:
            metrics = as_metrics(message.metrics.split(",") if message.metrics else ())
        except HoldfastError:
            raise RefusedError("it does not know a metric that is asked for") from None
        taking, _, state = self._found(message)
        sums: dict[str, list[float]] = {}
        held_out = {TEST: self.tests, VALIDATION: self.validation}
        asked_for = {name: held_out[name] for name in message.sets.split()}
        there = {n: own for n, own in asked_for.items() if own is not None and count(own)}
        for name, model in taking.models(message, state).items() if there else ():
            others = metrics if name == OWN else ()
            for of, own in there.items():
                for metric, pair in self._measured(model, own, others).items():
                    sums[f"{of} {name} {metric}"] = pair
        return messages.Measured(message.run, asked, sums)

    def _measured(
        self, params: Tree, examples: Tree, metrics: Sequence[Metric]
    ) -> dict[str, list[float]]:
        """Sums and counts of one model; what is not finite cannot be said, and is not counted."""
        model, n = self.by or self.experiment.model, count(examples)
        found = {name: [value, n] for name, value in totals(model, params, examples).items()}
        others = [metric for metric in metrics if metric.name not in found]
        # Of the whole set there is one value.
        for name, value in of_set(others, model, params, examples).items():
            if value is not None:
                found[name] = [value, 1]
        return {name: pair for name, pair in found.items() if math.isfinite(pair[0])}

    def model_file(self, run: str) -> Path:
        """Where the model is that this site would use after a run, for `hf.load` and `holdfast predict`."""
        return self._folder(run) / _MODEL

    def _keep(self, message: messages.Keep, asked: str) -> messages.Kept:
        taking, _, state = self._found(message)
        model, task = taking.deployed(message, state), taking.task
        own = task.adapt is not None or deploys_its_own(task.algorithm, model)
        about = described(
            self.experiment.model,
            self.examples,
            jax.device_get(model),
            method=taking.begin.method or task.algorithm.name,
            round=message.round,
            seed=taking.begin.seed,
            columns=self.columns,
            clients=(self.name,),
            personal=own,
            adapts=task.adapt is not None,
            stored="client" if own else "server",
            client=self.name if own else None,
        )
        path = write(self.model_file(message.run), by_name(jax.device_get(model)), about)
        log.info("deploy: the model of this site is in %s", path)
        return messages.Kept(message.run, asked)

    def _round(self, message: messages.Round, asked: str) -> messages.Message:
        taking, states, state = self._found(message)
        try:
            received = taking.received(message, states)
        except LostStateError as error:
            raise LostError(str(error)) from None
        reply = taking.round(message.round, received, state)
        # On the disk before the reply leaves: the server may ask for it next.
        kept = jax.device_get(taking.kept(reply.state, received))
        states.write(Version(message.round + 1, asked), kept)
        states.forget_before(message.kept, message.best)
        return messages.Reply(
            run=message.run,
            round=message.round,
            message=asked,
            examples=count(self.examples),
            finite=bool(reply.finite),
            body=taking.packed(message.round, reply),
        )


def begun_in(folder: Path, run: str) -> messages.Begin:
    """The message that a run began with at a site."""
    if not messages.is_digest(run):
        raise BadMessageError("`run` of its header is no digest")
    try:
        content = (folder / run / _BEGIN).read_bytes()
    except FileNotFoundError:
        raise LostError("this site does not know the run") from None
    try:
        return messages.Begin.read(frame.unpack(content, LARGEST))
    except BadMessageError:
        raise LostError("what this site knew of the run is damaged") from None


def answered(answer: Callable[[bytes, str], messages.Message], data: bytes) -> bytes:
    """The answer to a message as bytes; what is wrong is said in it, never raised."""
    asked = frame.identity(data) if isinstance(data, bytes) else "0" * 32
    try:
        return answer(data, asked).pack()
    except RefusedError as error:
        why, lost = str(error), isinstance(error, LostError)
    except BadMessageError as error:
        why, lost = f"the message cannot be read: {error}", False
    return messages.Refusal(_one_line(why), asked, lost).pack()


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200]
