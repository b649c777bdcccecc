"""Evaluation where the data is: sites send sums and counts, the server their means."""

import dataclasses
from typing import Any

import jax
import numpy as np

from holdfast.core import hyper
from holdfast.core.wire import Wire
from holdfast.deploy import frame, messages
from holdfast.deploy.cohort import RemoteCohort, version_of
from holdfast.deploy.collect import Collector
from holdfast.deploy.frame import BadMessageError
from holdfast.deploy.replies import SiteRefusedError, read_refusal
from holdfast.deploy.taking import BOTH, OWN, SERVER, TEST, VALIDATION
from holdfast.engine.personal import deployed_message
from holdfast.errors import HoldfastError
from holdfast.evaluate.evaluators import Personal, named_by
from holdfast.evaluate.measuring import also
from holdfast.evaluate.protocol import EvaluationView, Evaluator
from holdfast.metrics import Metric
from holdfast.metrics.by_name import named
from holdfast.metrics.metric import Directions
from holdfast.models.model import Model
from holdfast.record.history import SITES
from holdfast.trees import Tree

_MOST_HEADER = 1 << 16
_message = jax.jit(deployed_message)


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """What an experiment file measures on test examples, where these are the sites' own.

    Args:
        every: rounds between evaluations.
        server: whether the server's model is measured, on all of them together.
        personal: whether each site's own is, on its own.
        metrics: of each site's own set.
        sets: which of a site's held-out examples: test examples, and those to choose by.
    """

    every: int = 1
    server: bool = True
    personal: bool = False
    metrics: tuple[Metric, ...] = ()
    sets: tuple[str, ...] = (TEST,)
    keeps_last_models = False

    def _of_clients(self, of: str) -> Personal:
        return Personal((), self.every, name=self._name(of), metrics=self.metrics)

    def _name(self, of: str) -> str:
        """What stands before the metrics of a set."""
        return "" if of == TEST else of

    @property
    def directions(self) -> Directions:
        """As in a simulation."""
        return self._of_clients(TEST).directions

    def columns(self, measured: list[str]) -> list[str]:
        """As in a simulation, but of sets of all sites together."""
        names = []
        for of in self.sets:
            if self.server:
                names += [*named_by(self._name(of), dict.fromkeys(measured, 0.0))]
            if self.personal:
                names += self._of_clients(of).columns(also(measured, self.metrics))
        return names

    def check(self, model: Model, params: Tree, clients: int) -> None:
        """Sites look at their own examples; which metrics they know is known here."""
        unknown = next((m.name for m in self.metrics if not _is_of_library(m)), None)
        if unknown is not None:
            raise HoldfastError(
                f"deploy: `{unknown}` is a metric of your own, and sites measure those of the library alone; "
                f"take it out.",
                about=("evaluate", "metrics"),
            )

    def __call__(self, view: EvaluationView) -> dict[str, Any]:
        raise HoldfastError("HeldOut: test examples are at sites; use hf.deploy.run.")


def _is_of_library(metric: Metric) -> bool:
    try:
        return named(metric.name).title == metric.title
    except HoldfastError:
        return False


def at_sites(evaluator: Any, engine: RemoteCohort) -> Evaluator:
    """`hf.evaluate.personal` as sites work it out, on their own held-out examples; others as they are."""
    if isinstance(evaluator, HeldOut):
        return HeldOutAtSites(
            evaluator.every,
            evaluator.server,
            evaluator.personal,
            evaluator.metrics,
            evaluator.sets,
            engine=engine,
        )
    if not isinstance(evaluator, Personal):
        found: Evaluator = evaluator
        return found
    if evaluator.latest:
        raise HoldfastError(
            "deploy: evaluate.personal of the latest models is for simulations only, since the server does "
            "not know them; leave `latest` out.",
            about=("evaluate",),
        )
    return HeldOutAtSites(
        evaluator.every,
        False,
        True,
        evaluator.metrics,
        (VALIDATION if evaluator.name == VALIDATION else TEST,),
        called=evaluator.name,
        adapt=evaluator.adapt,
        engine=engine,
    )


@dataclasses.dataclass(frozen=True)
class HeldOutAtSites(HeldOut):
    """The same with sites that can be asked: means of all examples, of all sites, and of the worst tenth."""

    called: str = ""
    adapt: Any = None
    engine: RemoteCohort | None = dataclasses.field(default=None, repr=False, compare=False)

    def _name(self, of: str) -> str:
        return self.called or super()._name(of)

    def __call__(self, view: EvaluationView) -> dict[str, Any]:
        assert self.engine is not None
        engine, clients = self.engine, list(range(len(view.state.client_states)))
        models = SERVER if not self.personal else BOTH if self.server else OWN
        asked = _AskedEvaluation(engine, view, models, self.sets, self.metrics)
        collect = Collector(engine.transport, engine.roster, engine.patience)
        replies = collect(view.state.round - 1, clients, asked).found
        out: dict[str, Any] = {}
        for of in self.sets:
            each = {c: replies[c][of] for c in clients if of in (replies.get(c) or {})}
            if not each and of == VALIDATION and replies:
                raise HoldfastError(
                    "deploy: no site has examples to choose by; give hf.deploy.Site(validation=...), or a "
                    "larger share.",
                    about=("evaluate",),
                )
            out |= self._of_set(view, of, each)
        return out

    def _of_set(self, view: EvaluationView, of: str, each: dict[int, Any]) -> dict[str, Any]:
        """What comes of one set, from the sums of sites that have such examples."""
        out: dict[str, Any] = {}
        if self.server:
            out |= named_by(self._name(of), _together([sums[SERVER] for sums in each.values()]))
        which = OWN if self.personal else SERVER
        # A site whose examples have no such value, as AUC of one class, is in no mean.
        none: dict[str, float | None] = {metric.name: None for metric in self.metrics}
        means = [
            none | {n: float(np.float64(total) / count) for n, (total, count) in e[which].items()}
            for e in each.values()
        ]
        if self.personal and means:
            out |= self._of_clients(of).of_clients(view, means)
        return out if self._name(of) else out | _by_site(list(each), each.values(), which, means)


def _together(several: list[dict[str, list[float]]]) -> dict[str, float]:
    """Means over all examples, of what everybody measured."""
    found = {}
    for name in several[0] if several else ():
        if all(name in sums for sums in several):
            count = sum(sums[name][1] for sums in several)
            found[name] = float(np.float64(sum(sums[name][0] for sums in several)) / count)
    return found


def _by_site(clients: list[int], sums: Any, which: str, means: list[Any]) -> dict[str, Any]:
    """What is shown of each site by its name: more than one number, so that it rides beside the columns."""
    if not means:
        return {}
    common = [name for name in means[0] if all(own.get(name) is not None for own in means)]
    tested = [int(max(count for _, count in own[which].values())) for own in sums]
    found = {name: np.array([own[name] for own in means]) for name in common}
    about = {"client": np.array(clients), "tested": np.array(tested)}
    return {f"{SITES}{name}": values for name, values in {**about, **found}.items()}


class _AskedEvaluation:
    """What sites are asked to measure."""

    def __init__(
        self,
        engine: RemoteCohort,
        view: EvaluationView,
        models: str,
        sets: tuple[str, ...],
        metrics: tuple[Metric, ...],
    ) -> None:
        state = view.state
        # After a first round by another method, what sites have is of that method.
        self._session = session = engine.session(state.round - 1)
        now = hyper.at_round(session.algorithm, state.round)
        msg = _message(now, state.params, state.server.rule)
        body = Wire().pack((state.params, msg))
        self._models, self._sets = models, sets
        self._asked: dict[int, bytes] = {
            client: messages.Evaluate(
                run=session.run,
                round=state.round,
                base=version_of(state.client_states[client]),
                models=models,
                sets=" ".join(sets),
                metrics=",".join(metric.name for metric in metrics),
                body=body,
            ).pack()
            for client in range(len(state.client_states))
        }

    def message(self, client: int) -> bytes:
        return self._session.next_message(client, self._asked[client])

    def read(self, client: int, data: bytes) -> Any:
        if self._session.read_begun(client, data):
            return None
        found = frame.unpack(data, 0, _MOST_HEADER)
        try:
            read_refusal(found)
        except SiteRefusedError as refusal:
            self._session.refused_by(client, refusal)
            raise
        measured = messages.Measured.read(found)
        if measured.message != frame.identity(self._asked[client]):
            raise BadMessageError("it answers another message")
        if any(n < 1 for _, n in measured.sums.values()):
            raise BadMessageError("it measured on no examples")
        return self._by_set(measured.sums)

    def _by_set(self, sums: dict[str, list[float]]) -> dict[str, dict[str, dict[str, list[float]]]]:
        """Sums by set, model and metric; no set of which a site holds nothing out."""
        out: dict[str, dict[str, dict[str, list[float]]]] = {}
        # The loss first, as in a simulation.
        for name, pair in sorted(
            sums.items(), key=lambda item: (not item[0].endswith(" loss"), item)
        ):
            of, model, metric = (*name.split(" ", 2), "", "")[:3]
            if of not in self._sets or not metric or model not in self._models.split():
                raise BadMessageError(f"it measured {name!r}, which nobody asked for")
            out.setdefault(of, {SERVER: {}, OWN: {}})[model][metric] = pair
        for found in out.values():
            if any(not found[model] for model in self._models.split() if model in (SERVER, OWN)):
                raise BadMessageError("it did not measure what was asked for")
        return out
