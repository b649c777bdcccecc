"""A run as sites take part in it: its name, how it begins at a site, and who has begun.

A first round by another method is a run of its own to the sites, with states of its own.
"""

from holdfast.core.algorithm import Algorithm
from holdfast.core.wire import Wire
from holdfast.deploy import frame, messages
from holdfast.deploy.frame import BadMessageError
from holdfast.deploy.replies import SecondAnswerError, SiteRefusedError, read_refusal
from holdfast.deploy.roster import Roster
from holdfast.deploy.task import FIRST_ROUND, WHOLE, Task, name_of
from holdfast.engine.setup import Setup, checked


class Session:
    """What sites are told of one run.

    Args:
        setup: of the run, with its mask if it chose one.
        task: of the whole experiment, by which sites know it.
        roster: the sites.
        part: the run, or its first round where another method takes that.
    """

    def __init__(self, setup: Setup, task: Task, roster: Roster, part: str = WHOLE) -> None:
        identity = sorted(setup.identity().items())
        mask = setup.chosen_mask
        self.part = part
        # Of a mask that was chosen the name is another one: the run at sites is another one.
        self._mask = "" if mask is None else "".join(str(int(m)) for m in mask.parameters)
        words = [word for word in (part, self._mask) if word]
        self.run = name_of(*(f"{k}: {v}" for k, v in identity), *words)
        if part == FIRST_ROUND:
            assert setup.opening is not None
            setup = checked(setup.opening)
        self.setup, self._task, self._roster = setup, task, roster
        self._begun: set[int] = set()
        self._known: set[int] = set()

    @property
    def algorithm(self) -> Algorithm:
        """What the server runs."""
        return self.setup.algorithm

    def begin(self, client: int) -> bytes:
        """The first message of the run to a site."""
        setup, task = self.setup, self._task
        return messages.Begin(
            run=self.run,
            part=self.part,
            mask=self._mask,
            method=self._roster.method,
            table=self._roster.table,
            algorithm=task.algorithm_digest,
            model=task.model_digest,
            local=task.local_digest,
            seed=int(setup.experiment.seed),
            client=client,
            clients=len(setup.clients),
            examples=int(setup.batches.sizes[client]),
            largest=setup.batches.largest[0],
            weight=float(setup.batches.weights[client]),
            body=Wire().pack(setup.params),
        ).pack()

    def next_message(self, client: int, data: bytes) -> bytes:
        """This message, or that which begins the run if the site has not."""
        return data if client in self._begun else self.begin(client)

    def read_begun(self, client: int, data: bytes) -> bool:
        """Take the answer to the message that begins the run, if it is one."""
        if client in self._begun:
            # Asked twice, since it was slow to begin: it has its round by now.
            if data == messages.Begun(self.run).pack():
                raise SecondAnswerError("it has said already that it has begun")
            return False
        found = frame.unpack(data, 0, 4096)
        read_refusal(found)
        if messages.Begun.read(found).run != self.run:
            raise BadMessageError("it has begun another run")
        self._begun.add(client)
        return True

    def refused_by(self, client: int, refusal: SiteRefusedError) -> None:
        """A site that does not know the run is told of it again."""
        if refusal.lost:
            self._begun.discard(client)

    def asked(self, client: int, version: messages.Version) -> None:
        """A client is to go on from this version of its state."""
        # Who took part before a restart of the server has begun; if its disk says otherwise, so will it.
        if version != messages.FIRST and client not in self._known:
            self._begun.add(client)
        self._known.add(client)
