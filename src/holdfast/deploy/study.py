"""What server and sites have of an experiment file: an experiment, once it is known what the sites have."""

from typing import Protocol

from holdfast.data.dataset import Dataset
from holdfast.data.tables.apart import Fitted, TableSettings
from holdfast.engine.experiment import Experiment
from holdfast.saved.description import Columns


class Study(Protocol):
    """An experiment file as a federation runs it (`holdfast.config.deployment` makes one of a file)."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of the sites."""

    @property
    def table(self) -> TableSettings | None:
        """What every site's table is, if sites have tables."""

    @property
    def digest(self) -> str:
        """By which a site knows the experiment, with all its numbers."""

    @property
    def validation(self) -> float | None:
        """Which share of its training examples every site sets apart to choose rounds by."""

    @property
    def label(self) -> str:
        """Of the method that the server runs."""

    def dataset(self, fitted: Fitted | None) -> Dataset:
        """Examples of the shapes that sites have; the values are not used."""

    def at_server(self, fitted: Fitted | None) -> Experiment:
        """What the server runs."""

    def at_site(self, method: str, fitted: Fitted | None) -> Experiment:
        """What a site takes part in: this method, with what became of all sites' columns."""

    def columns(self, dataset: Dataset) -> Columns:
        """What a saved model says of inputs and labels."""
