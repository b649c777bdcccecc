"""What a saved model says of itself: all that is needed to use it, in plain values."""

import dataclasses
from typing import Any, Literal

from holdfast.errors import HoldfastError
from holdfast.models.model import Task

FORMAT = 2


@dataclasses.dataclass(frozen=True)
class ArrayType:
    """The shape of one example's part, and its type."""

    shape: tuple[int, ...]
    dtype: str


@dataclasses.dataclass(frozen=True)
class Columns:
    """What the columns of a table are called, and how they become inputs."""

    features: tuple[str, ...] | None = None  # of the model's inputs, in order
    labels: tuple[str, ...] | None = None  # what label 0, 1, ... is called
    preprocessing: dict[str, Any] | None = None
    target: str | None = None  # the column with the label
    positive: tuple[str, ...] | None = None  # its values that count as label 1, if some were named
    names: tuple[str, ...] | None = None  # of all columns, for files without a first line of names
    separator: str | None = None  # between the cells of a text file, if not a comma


@dataclasses.dataclass(frozen=True)
class Description:
    """Everything beside the parameters. Plain values alone, so that it can be read as JSON."""

    task: Task | None  # None where the model does not say what it predicts
    x: ArrayType
    y: ArrayType
    method: str
    round: int  # after which the parameters were taken
    seed: int
    versions: dict[str, str]
    constructor: dict[str, Any] | None = None  # of the model: name and arguments
    code: str | None = None  # SHA-256 of the file, where the constructor is in one of the user's
    unbuildable: str = ""  # why there is no constructor
    columns: Columns | None = None  # None where nobody said what the data was
    client: str | None = None  # whose model it is, if it is one client's
    clients: tuple[str, ...] = ()  # who took part in training
    personal: bool = False  # clients use models of their own
    stored: Literal["server", "client", "clients"] = "server"  # whose parameters are in the file
    server_trained: bool = True  # whether the server's model is other than it began
    adapts: bool = False  # a client uses the server's model after local steps on its own data
    not_stored: str = ""  # why the clients' own models are not in the run folder
    scores: tuple[float, ...] = ()  # of rows it was calibrated with, in no order
    score: dict[str, Any] | None = None  # what they are; None before they could be anything but lac
    kept: str = ""  # why the parameters are of this round, if it is not the last
    format: int = 1  # the first that can say all of it

    def to_dict(self) -> dict[str, Any]:
        """As nested dictionaries."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, given: Any, path: object) -> "Description":
        """Read and check one; refuses what this version cannot know."""
        # Nobody who trains needs it, and it takes a while to import.
        import pydantic

        written = given.get("format") if isinstance(given, dict) else None
        if isinstance(written, int) and written > FORMAT:
            made = (given.get("versions") or {}).get("holdfast", "a later version")
            raise HoldfastError(
                f"{path} was written by holdfast {made} in format {written}, and this one reads up to "
                f"{FORMAT}; upgrade holdfast."
            )
        try:
            return pydantic.TypeAdapter(cls).validate_python(given)
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise HoldfastError(
                f"{path} is damaged (its description, {where}: {first['msg']}); copy or save it again."
            ) from None

    @property
    def title(self) -> str:
        """Whose model it is, in a few words: `fedavg, round 40, client cleveland`."""
        whose = f", client {self.client}" if self.client is not None else ""
        if self.stored == "clients":
            whose = f", {len(self.clients)} clients' own models"
        elif self.personal and self.client is None:
            whose = ", the server's model"
        return f"{self.method}, round {self.round}{whose}"
