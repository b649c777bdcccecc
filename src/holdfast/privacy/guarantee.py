"""What a run spends, when it ends, and what can be signed of it."""

import dataclasses
import functools
import math

from holdfast.privacy.account import Scheme, epsilon
from holdfast.privacy.asked import Accountant

# Rounds at which PLD is asked grow by this factor: it takes a good part of a second.
_APART = 1.25
_MOST_ROUNDS = 10**7


@dataclasses.dataclass(frozen=True)
class Guarantee:
    """What can be signed of a run, and the noise it took.

    Args:
        sentence: all of it in words.
        epsilon: after these rounds.
        delta: the chance that is left out.
        adjacency: of which two populations it speaks.
        rounds: that were run; of local noise, the most in which one client took part; of noise in steps, the
            most passes over the data of one.
        cohort: how clients were drawn, or local or example where they added the noise.
        clients: with data, whose number is public.
        clients_expected: in a round.
        accountant: of dp-accounting.
        noise_multiplier: the noise over what one client can move a sum by.
        clip: to which norm replies were bounded, in the first round.
        noise_in_mean: standard deviation in every number of a round's mean, in the first round; None where
            clients added the noise.
        noise_in_reply: the same of a reply; None where there was none.
        unit: who or what is protected: a client with all its data, or an example of one.
        noise_in_step: standard deviation in every number of the gradient of a whole batch, in the first
            round; None where steps had no noise.
    """

    sentence: str
    epsilon: float
    delta: float
    adjacency: str
    rounds: int
    cohort: str
    clients: int
    clients_expected: float
    accountant: Accountant
    noise_multiplier: float
    clip: float
    noise_in_mean: float | None
    noise_in_reply: float | None = None
    unit: str = "client"
    noise_in_step: float | None = None


@dataclasses.dataclass(frozen=True)
class Account:
    """What a run spends, and when it ends. A function of the number of rounds, so it needs no state."""

    scheme: Scheme
    noise_multiplier: float
    delta: float
    accountant: Accountant
    budget: float | None = None
    # For how many rounds the noise was found, if it was.
    planned: int | None = None
    # The most that a round adds to what is counted.
    per_round: int = 1

    def epsilon(self, rounds: int) -> float:
        """After so many rounds."""
        if rounds == 0:
            return 0.0
        return epsilon(self.scheme, self.noise_multiplier, rounds, self.delta, self.accountant)

    def at_most(self, rounds: int) -> float:
        """A bound of it that is soon found: that of the next of some rounds, a quarter apart.

        It is exact in the last round of the budget; with RDP, and where nothing is amplified, in every round.
        """
        soon = self.accountant == "rdp" or not self.scheme.amplified
        return self.epsilon(rounds if soon else self._asked(rounds))

    def _asked(self, rounds: int) -> int:
        found = 1
        while found < rounds:
            found = max(found + 1, math.ceil(found * _APART))
        last = self.rounds
        return found if last is None or rounds > last else min(found, last)

    @functools.cached_property
    def rounds(self) -> int | None:
        """How many rounds, replies or passes the budget or the plan is for; None without either."""
        most = len(self.scheme.moved)
        if self.budget is None:
            return most or None
        if self.planned is not None and self.epsilon(self.planned) <= self.budget:
            # Noise was found for these; a round more may fit by rounding, and would not be as planned.
            return self.planned
        low, high = 0, 1
        while self.epsilon(high) <= self.budget:
            if high in (most, _MOST_ROUNDS):
                return high
            low, high = high, min(2 * high, most or _MOST_ROUNDS)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.epsilon(middle) <= self.budget else (low, middle)
        return low

    def spent(self, rounds: int) -> str | None:
        """Why there can be no further round; None if there can."""
        if self.rounds is None or rounds + self.per_round <= self.rounds:
            return None
        if self.budget is None or rounds == len(self.scheme.moved):
            return f"the {rounds} rounds for which the noise is correlated are over"
        return (
            f"the privacy budget is spent: epsilon {self.epsilon(rounds):.4g} of {self.budget:g} at "
            f"delta {self.delta:g} after {rounds} {self.counted}"
        )

    @property
    def by_client(self) -> bool:
        """Whether it counts what one client did rather than rounds."""
        return self.scheme.kind in ("local", "example")

    @property
    def counted(self) -> str:
        """What it counts."""
        return {"local": "replies of a client", "example": "passes over a client's data"}.get(
            self.scheme.kind, "rounds"
        )

    def guarantee(self, rounds: int, clip: float, noise: float) -> Guarantee:
        """Of so many rounds, with this clip and this noise in every number of a round's mean; of a reply if
        it is local, of a step's gradient if of examples."""
        kind = self.scheme.kind
        return Guarantee(
            sentence=self.sentence(rounds),
            epsilon=self.epsilon(rounds),
            delta=self.delta,
            adjacency=self.scheme.adjacency,
            rounds=rounds,
            cohort=self.scheme.kind,
            clients=self.scheme.population,
            clients_expected=self.scheme.expected,
            accountant=self.accountant,
            noise_multiplier=self.noise_multiplier,
            clip=clip,
            noise_in_mean=None if self.by_client else noise,
            noise_in_reply=noise if kind == "local" else None,
            unit="example" if kind == "example" else "client",
            noise_in_step=noise if kind == "example" else None,
        )

    def sentence(self, rounds: int) -> str:
        """The guarantee after so many rounds, for whoever has to sign it."""
        if self.scheme.kind == "example":
            return (
                f"What leaves a client in training, in at most {rounds} passes over its data, is "
                f"({self.epsilon(rounds):.4g}, {self.delta:g})-differentially private for each of its "
                f"examples, towards the server too: whether {self.scheme.adjacency} changes the probability "
                f"of any outcome by a factor of at most e to the epsilon, but for a chance of delta. Who has "
                f"several examples is protected less. The client adds the noise itself, in every local step; "
                f"the server knows who takes part, and must not know what noise is drawn from (in a "
                f"simulation, the seed)."
            )
        if self.scheme.kind == "local":
            return (
                f"What leaves a client in training, in at most {rounds} replies, is "
                f"({self.epsilon(rounds):.4g}, {self.delta:g})-differentially private for the client with "
                f"all its data, towards the server too: whether {self.scheme.adjacency} changes the "
                f"probability of any outcome by a factor of at most e to the epsilon, but for a chance of "
                f"delta. The client adds the noise itself; the server knows who takes part and how many "
                f"examples each has, and must not know what noise is drawn from (in a simulation, the seed)."
            )
        return (
            f"What is released after {rounds} rounds, all models and states of the server, is "
            f"({self.epsilon(rounds):.4g}, {self.delta:g})-differentially private for a client with all its "
            f"data: whether {self.scheme.adjacency} changes the probability of any outcome by a factor of at "
            f"most e to the epsilon, but for a chance of delta. The server is trusted with single replies, "
            + (
                "and with the seed; in which rounds a client takes part is public."
                if self.scheme.kind == "planned"
                else "with who took part and with the seed."
            )
        )
