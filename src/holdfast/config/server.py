"""What the server does in a method: how it trains, before the first round and in each."""

import dataclasses
from typing import Any

from holdfast.config import schema
from holdfast.config.file import ExperimentFile, KeyPath
from holdfast.config.making import located, make_local
from holdfast.config.schema import OwnServer, ServerSection
from holdfast.config.sweep import SweptMethod, over
from holdfast.core.algorithm import Algorithm
from holdfast.core.rule import Need, parts_of
from holdfast.engine.server import Server
from holdfast.engine.simulate import pretrain
from holdfast.models import Model
from holdfast.trees import Tree


@dataclasses.dataclass(frozen=True)
class Pretraining:
    """Training at the server before the first round."""

    server: Server
    rounds: int

    def start(self, model: Model, seed: int) -> Tree:
        """Where a run begins that is trained so before."""
        return pretrain(model, self.server, self.rounds, seed)


@dataclasses.dataclass(frozen=True)
class AtServer:
    """What a method has of the server."""

    server: Server | None = None
    pretraining: Pretraining | None = None
    data_sharing: bool = False


def at_server(swept: SweptMethod, algorithm: Algorithm, source: Any) -> AtServer:
    """The server's part of a method: what its entry says over what `[server]` says for all."""
    file, at = swept.file, swept.at
    own = _own(file, at, swept.table)
    if "server" not in file.values:
        if own is not None:
            raise file.error((*at, "server"), "there is no [server]; add one with examples = 500.")
        return AtServer()
    shared: Any = schema.check(file, ("server",), ServerSection, file.values["server"])
    own = own or OwnServer()
    table, where = _training(swept, shared, own)
    server = _server(file, where, table, source, own, shared)
    pretraining = _pretraining(swept, shared, own, table, server)
    if not (learns_at_server(algorithm) or pretraining):
        _refuse_unused(swept, own)
    asked = shared.data_sharing if own.data_sharing is None else own.data_sharing
    if asked and server.alone:
        raise file.error(
            _written(swept, own, "data_sharing"),
            "the server has a loss and no examples that clients could have too; give it examples, "
            "share, clients or data.",
        )
    return AtServer(server, pretraining, bool(asked))


def learns_at_server(algorithm: Algorithm) -> bool:
    """Whether the server trains in a method."""
    return any(Need.SERVER_DATA in part.needs for part in parts_of(algorithm.rule))


def pretrains(swept: SweptMethod) -> bool:
    """Whether the server trains before a method's first round."""
    own, shared = swept.table.get("server") or {}, swept.file.values.get("server", {})
    return bool(own.get("pretrain", shared.get("pretrain", 0)))


def _own(file: ExperimentFile, at: KeyPath, table: dict[str, Any]) -> Any:
    own = table.get("server")
    return None if own is None else schema.check(file, (*at, "server"), OwnServer, own)


def _written(swept: SweptMethod, own: Any, key: str) -> KeyPath:
    """Where a key of the server stands: in the entry, or in `[server]` for all."""
    return ("server", key) if getattr(own, key) is None else (*swept.at, "server", key)


def _training(swept: SweptMethod, shared: Any, own: Any) -> tuple[dict[str, Any], KeyPath]:
    """It trains as clients do unless `[server]` says otherwise; a method's own keys go over that."""
    base: dict[str, Any] = swept.local
    where: KeyPath = ("local",)
    if shared.local is not None:
        base, where = shared.local, ("server", "local")
    if not own.local:
        return base, where
    return over(base, own.local), (*swept.at, "server", "local")


def _server(
    file: ExperimentFile,
    where: KeyPath,
    table: dict[str, Any],
    source: Any,
    own: Any,
    shared: Any,
) -> Server:
    local = make_local(file, where, table)
    size = own.gradient_batch_size or shared.gradient_batch_size
    with located(file, ("server",)):
        return Server(source, local, gradient_batch_size=size)


def _pretraining(
    swept: SweptMethod, shared: Any, own: Any, table: dict[str, Any], server: Server
) -> Pretraining | None:
    """Rounds of the server's training, with other keys of `[local]` if the file gives some."""
    file, at = swept.file, _written(swept, own, "pretrain")
    given = shared.pretrain if own.pretrain is None else own.pretrain
    if not given and not isinstance(given, dict):
        return None
    if server.alone:
        raise file.error(
            at, "the server has a loss and no examples to train on; remove it, or give it examples."
        )
    if not isinstance(given, dict):
        return Pretraining(server, given)
    rounds = given.get("rounds", 1)
    if type(rounds) is not int or rounds < 1:
        raise file.error(
            (*at, "rounds"), f"`rounds` is {rounds!r} in [server.pretrain]; expected at least 1."
        )
    others = {name: value for name, value in given.items() if name != "rounds"}
    local = make_local(file, at, over(table, others))
    return Pretraining(dataclasses.replace(server, local=local), rounds)


def _refuse_unused(swept: SweptMethod, own: Any) -> None:
    unused = [name for name in ("local", "gradient_batch_size") if getattr(own, name) is not None]
    if unused:
        name = swept.table["name"]
        raise swept.file.error(
            (*swept.at, "server", unused[0]),
            f"`{unused[0]}` is given, but the server does not train in `{name}`; remove it, or take a "
            f"method in which it does, such as fedavg_plus.",
        )
