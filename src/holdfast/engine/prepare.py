"""What clients do once before their first round, and their states as the next round would find them."""

import warnings
from typing import Any

import jax
import numpy as np
from jax import tree

from holdfast.client_states.states import ClientStates
from holdfast.core import hyper
from holdfast.core.client import Preparation
from holdfast.core.keys import Purpose, host_key
from holdfast.core.round_types import ClientState
from holdfast.engine.compiled import CompileTime
from holdfast.engine.feeds import Feed
from holdfast.engine.setup import Setup
from holdfast.errors import HoldfastError, HoldfastWarning

# Clients; they share one program and the memory of their states.
_PREPARED_TOGETHER = 32


class Preparer:
    """Prepares clients when they first take part, or when somebody asks for their model before."""

    def __init__(self, setup: Setup, feed: Feed) -> None:
        self._setup, self._feed = setup, feed
        self._traits = setup.algorithm.rule.traits
        self._found: dict[int, ClientState] = {}
        # Where the time goes that compiling takes: to the round, which prepares its cohort.
        self.compiling = CompileTime()

    def cohort(
        self, t: int, known: ClientStates, clients: np.ndarray, states: ClientState
    ) -> ClientState:
        """States of a cohort, those of clients in their first round prepared."""
        setup = self._setup
        fresh = (clients >= 0) & ~known.has(clients)
        if not self._traits.prepares or not fresh.any():
            return states
        slots, examples = self._feed(setup.batches, t, clients, 1)
        # What a client prepares is a function of its data and of where the run began, not of when
        # it first takes part.
        inputs = Preparation(
            model=setup.experiment.model,
            rule=hyper.at_round(setup.algorithm, 0).rule,
            x=setup.params,
            states=states.rule,
            slots=slots,
            examples=examples,
            fresh=fresh,
            key=host_key(setup.experiment.seed, Purpose.PREPARE),
        )
        with self.compiling.watch():
            found = setup.engine.prepare(t, inputs)
        self._warn(clients, fresh, jax.device_get(found))
        return states._replace(rule=found)

    def _warn(self, clients: np.ndarray, fresh: np.ndarray, states: Any) -> None:
        doubt_of = self._traits.doubt
        new = np.flatnonzero(fresh)
        doubts = {
            int(clients[slot]): doubt
            for slot in new
            if (doubt := doubt_of(tree.map(lambda a, s=slot: a[s], states)))
        }
        if doubts:
            client, doubt = next(iter(doubts.items()))
            warnings.warn(
                f"{self._setup.algorithm.name}: the preparation of {len(doubts)} of {len(new)} clients "
                f"is unfinished, first client {client}: {doubt}.",
                HoldfastWarning,
                stacklevel=2,
            )

    def state_of(self, known: ClientStates, client: int) -> ClientState:
        """One client's state as it would enter the next round, also if it never took part."""
        if client in known.touched or not self._traits.prepares:
            return known[client]
        if self._setup.clients.sizes[client] == 0:
            raise HoldfastError(
                f"client {client} has no data, so it cannot prepare a model of its own; "
                f"use the server's, run.params."
            )
        if client not in self._found:
            self._prepare_absent(known, client)
        return self._found[client]

    def _prepare_absent(self, known: ClientStates, client: int) -> None:
        """Prepare this client and some of the next ones, for evaluation without a round."""
        able = self._setup.batches.able
        ids = able[np.searchsorted(able, client) :]
        ids = ids[~known.has(ids)][:_PREPARED_TOGETHER]
        # A power of two, so that few programs are compiled.
        slots = np.concatenate([ids, np.full((1 << (len(ids) - 1).bit_length()) - len(ids), -1)])
        found = jax.device_get(self.cohort(0, known, slots, known.read(slots)))
        for slot, i in enumerate(ids):
            self._found[int(i)] = tree.map(lambda a, slot=slot: np.array(a[slot]), found)
