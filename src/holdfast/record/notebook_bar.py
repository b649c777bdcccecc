"""A progress bar for notebooks: one output of a cell, written over as runs go on. Needs no widgets."""

import sys
import time
from types import TracebackType
from typing import Any

from holdfast import markup

_SECONDS_BETWEEN = 0.2
_BEFORE_SHOWN = 0.5  # seconds: what is over at once needs no bar
# Of the cell that runs: its number and its output, which the next run of the same cell writes over.
_here: dict[int, Any] = {}


def shell() -> Any | None:
    """The shell of a notebook's kernel; None in a terminal and in a program."""
    found = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return found if getattr(found, "kernel", None) is not None else None


class NotebookBar:
    """Rounds done of all, and what was measured; shown inside a `with`.

    Args:
        description: what is running.
        total: rounds of all runs.
        said: the field of an update that is shown.
        at_once: shown from the first moment, and not only once it takes long.
    """

    task_ids = (0,)

    def __init__(self, description: str, total: int, said: str, at_once: bool) -> None:
        self.description, self.total, self._said = description.strip(), total, said
        self.completed, self.words, self.ended = 0, "", ""
        self._next = time.monotonic() + (0 if at_once else _BEFORE_SHOWN)
        self._began = time.monotonic()
        self._shown = False

    def update(self, task: int, completed: int | None = None, **fields: Any) -> None:
        """More rounds are done."""
        self.completed = self.completed if completed is None else completed
        self.words = fields.get(self._said) or self.words
        if time.monotonic() >= self._next:
            self._draw()

    def __enter__(self) -> "NotebookBar":
        self.update(0)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._shown:
            self.ended = "" if error is None else "stopped"
            self._draw()

    def _draw(self) -> None:
        from IPython.display import display

        asked = shell()
        cell = 0 if asked is None else asked.execution_count
        if cell in _here:
            _here[cell].update(self)
        else:
            _here.clear()
            _here[cell] = display(self, display_id=True)
        self._shown, self._next = True, time.monotonic() + _SECONDS_BETWEEN

    def __repr__(self) -> str:
        return f"{self.description} {self._figures()}"

    def _repr_html_(self) -> str:
        bar = markup.Safe(f'<progress value="{self.completed}" max="{self.total}"></progress>')
        return markup.card(self.description, self._figures(), bar)

    def _figures(self) -> str:
        seconds = time.monotonic() - self._began
        left = ""
        if 0 < self.completed < self.total and not self.ended:
            rest = seconds / self.completed * (self.total - self.completed)
            left = f"about {rest:.0f} s left"
        told = [f"{self.completed}/{self.total}", self.words, left, self.ended]
        return "  ".join(filter(None, told))
