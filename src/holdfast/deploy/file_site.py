"""A site of an experiment file: it knows its inputs and classes only when all sites have told of theirs.

Like any site it is a function of a message and its disk: what became of all sites' columns is kept there
under its digest, and which of them a run is with is in the message that began it.
"""

import dataclasses
import functools
import json
import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from holdfast.data.clients import Clients, count
from holdfast.data.tables.apart import Fitted, TableApart
from holdfast.data.validation import set_apart
from holdfast.deploy import frame, messages, summaries
from holdfast.deploy.frame import BadMessageError
from holdfast.deploy.site import LARGEST, RefusedError, Site, answered, begun_in
from holdfast.deploy.site_data import SiteData, without_data
from holdfast.deploy.study import Study
from holdfast.deploy.task import name_of
from holdfast.errors import HoldfastError
from holdfast.record.files import write_whole
from holdfast.trees import Tree

log = logging.getLogger("holdfast.deploy")
_WITH_RUN = ("round", "evaluate", "keep")


@dataclasses.dataclass(frozen=True, eq=False)
class FileSite:
    """A site of an experiment file.

    Args:
        study: the experiment file, as the site has it.
        data: where its rows or arrays are.
        folder: where it keeps what it remembers.
        name: what the server knows it by.
        experiments: digests of experiment files that it takes part in; that of the study unless given.
        algorithms: digests of the algorithms; those of the study unless given.
        models: the same of models.
    """

    study: Study
    data: SiteData
    folder: Path
    name: str
    experiments: Sequence[str] | None = None
    algorithms: Sequence[str] | None = None
    models: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.name not in self.study.names:
            raise HoldfastError(
                f"the site is called {self.name!r}, and the experiment is for "
                f"{', '.join(self.study.names)}; give one of these names.",
                about=("name",),
            )

    def answer(self, data: bytes) -> bytes:
        """The answer to a message; what is wrong is said in it, without a word of the site's data."""
        return answered(self._answer, data)

    def _answer(self, data: bytes, asked: str) -> messages.Message:
        try:
            found = frame.unpack(data, LARGEST)
            kind = found.header.get("kind")
            if kind == "columns":
                return self._columns(messages.Columns.read(found))
            if kind == "summarise":
                return self._summarise(messages.Summarise.read(found))
            return self._site(kind, found).answer_to(data, asked)
        except (RefusedError, BadMessageError):
            raise
        # What is wrong with the site's own data. All of it is for the site's log alone.
        except HoldfastError as error:
            log.error("deploy: %s", error)
            raise RefusedError(without_data(error)) from None

    def _site(self, kind: object, found: frame.Frame) -> Site:
        """The site as it takes part in one method."""
        if kind == "ask":
            ask = messages.Ask.read(found)
            return self.site(ask.method, self._told(ask.body))
        if kind == "begin":
            begin = messages.Begin.read(found)
        elif kind in _WITH_RUN:
            begin = begun_in(self.folder, str(found.header.get("run")))
        else:
            raise BadMessageError("it is none that a site answers")
        return self.site(begin.method, begin.table)

    @functools.lru_cache(maxsize=4)  # noqa: B019  # a site lives as long as its process
    def site(self, method: str, table: str) -> Site:
        """The site as it takes part in a method, with what became of all sites' columns."""
        fitted = self._fitted(table)
        dataset = self.study.dataset(fitted)
        if fitted is None:
            train, tests = self.data.examples()
        else:
            own = fitted.of_rows(self.rows)
            train, tests = own.train, own.test if len(own.test.y) else None
        validation = None
        if self.study.validation is not None:
            train, validation = self._set_apart(train, self.study.validation)
        return Site(
            self.study.at_site(method, fitted),
            train,
            self.folder,
            self.name,
            tests,
            validation,
            self.algorithms,
            self.models,
            self.study.columns(dataset),
        )

    def _set_apart(self, train: Tree, share: float) -> tuple[Tree, Tree]:
        """The examples that a simulation would train on and choose by, if it had the same of this site."""
        number = self.study.names.index(self.name)
        sizes = [0] * number + [count(train)]
        owned = Clients(train, np.arange(sizes[-1]), np.cumsum([0, *sizes]))
        kept, chosen = set_apart(owned, share)
        return kept[number], chosen[number] if chosen.sizes[number] else None

    @functools.cached_property
    def rows(self) -> TableApart:
        """The site's own table."""
        if self.study.table is None:
            raise BadMessageError("the experiment is on arrays, and no table is asked for")
        return self.data.table(self.study.table)

    def _check(self, study: str) -> None:
        own = self.study.digest
        if study != own:
            raise RefusedError(
                f"the server's experiment is {study[:12]}, this site's {own[:12]}: both must have the same"
            )
        if self.experiments is not None and own not in self.experiments:
            raise RefusedError(f"experiment {own} is not on this site's list of allowed ones")

    def _columns(self, asked: messages.Columns) -> messages.There:
        self._check(asked.study)
        there = self.rows.there()
        if there.labels is not None and sum(n > 0 for n in there.labels.values()) == 1:
            log.warning("deploy: all training rows here are of one class")
        return messages.There(self.name, body=summaries.there_as_json(there))

    def _summarise(self, asked: messages.Summarise) -> messages.Summary:
        self._check(asked.study)
        assert self.rows.given is not None
        found = summaries.from_json(asked.body)
        if not isinstance(found, dict) or found.keys() != {"words", "regression"}:
            raise BadMessageError("it does not say which columns hold words")
        words, regression = found["words"], found["regression"]
        known = set(self.rows.inputs)
        if not isinstance(words, list) or type(regression) is not bool or not known >= {*words}:
            raise BadMessageError("it does not say which of the columns hold words")
        # What is asked of a column follows from the experiment file that this site has, not from the server.
        questions = self.rows.given.settings.questions(self.rows.inputs, set(words))
        answer = self.rows.answers(questions, regression)
        return messages.Summary(self.name, body=summaries.summary_as_json(answer))

    def _told(self, body: bytes) -> str:
        """Keep what became of all sites' columns; its digest."""
        if self.study.table is None:
            return ""
        try:
            fitted = Fitted.from_dict(json.loads(body))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise BadMessageError("it does not say what became of the columns") from None
        content = summaries.as_json(fitted.to_dict())
        digest = name_of(content.decode())
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self._path(digest), content)
        return digest

    def _path(self, digest: str) -> Path:
        # `digest` is 32 hexadecimal digits, or the message was refused.
        return self.folder / f"columns-{digest}.json"

    def _fitted(self, digest: str) -> Fitted | None:
        if self.study.table is None:
            if digest:
                raise RefusedError("the experiment is on arrays here, and on tables at the server")
            return None
        if not messages.is_digest(digest):
            raise RefusedError("the server does not say what became of the columns")
        try:
            content = self._path(digest).read_bytes()
        except FileNotFoundError:
            raise RefusedError("what became of the columns is not on this site's disk") from None
        if name_of(content.decode("utf-8", "replace")) != digest:
            raise RefusedError("what became of the columns is damaged on this site's disk")
        return Fitted.from_dict(json.loads(content))
