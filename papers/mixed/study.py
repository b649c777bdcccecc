"""Mixed federated learning: clients and server learn one model from different data or losses.

Four comparisons; of each a table (Markdown) and a figure go to papers/mixed/results:

  imbalance      clients have only positive digits, the server only negative ones
  text           clients have posts by author, the server Wikipedia; next-character accuracy on both
  embeddings     clients pull related items together, the server pushes all apart; what travels
  dissimilarity  transfer against parallel training as the two losses move apart (quadratics)

All of it takes about five minutes on two cores. `text` reads text/*.gz below --folder and uses
generated text where they are absent; `embeddings` reads MovieLens-1M's ratings.dat if you have it
(--movielens FILE) and generates users otherwise.

examples:
  python -m papers.mixed.study imbalance             the digits, about a minute
  python -m papers.mixed.study all --quick           everything in small: does it run?
  python -m papers.mixed.study embeddings --movielens ml-1m/ratings.dat
"""

import argparse
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from papers.mixed import dissimilarity, embeddings, imbalance, report, text
from papers.mixed.common import Watch

PARTS = ("imbalance", "dissimilarity", "text", "embeddings")


def parse() -> argparse.Namespace:
    """What to run."""
    parser = argparse.ArgumentParser(
        prog="python -m papers.mixed.study",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("part", nargs="?", default="all", choices=[*PARTS, "all"])
    parser.add_argument("--quick", action="store_true", help="a few rounds of each, to try it out")
    parser.add_argument("--seeds", type=int, default=3, help="of `imbalance` (default: 3)")
    parser.add_argument(
        "--folder", type=Path, default=Path("../shared/data"), help="data (default: ../shared/data)"
    )
    parser.add_argument(
        "--movielens", type=Path, metavar="FILE", help="ratings.dat of MovieLens-1M"
    )
    parser.add_argument(
        "--results", type=Path, help="where tables and figures go (default: beside this file)"
    )
    given = parser.parse_args()
    if given.seeds < 1:
        parser.error(f"--seeds {given.seeds}; give at least 1.")
    if given.movielens is not None and not given.movielens.exists():
        parser.error(f"--movielens {given.movielens}: there is no such file.")
    return given


@contextmanager
def progress_bar(console: Console) -> Iterator[Watch]:
    """A bar for the run under way; yields the function that moves it."""
    look = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*look, console=console, transient=True) as progress:
        bar = progress.add_task("starting")

        def watch(what: str, now: int, rounds: int) -> None:
            progress.update(bar, description=what, completed=now, total=rounds)

        yield watch


def jobs(given: argparse.Namespace, folder: Path) -> dict[str, Callable[[Watch], None]]:
    """What to compute and write for each part."""
    quick: bool = given.quick

    def run_imbalance(watch: Watch) -> None:
        found = imbalance.compare(given.seeds, 20 if quick else 200, watch)
        imbalance.write(found, folder)

    def run_dissimilarity(watch: Watch) -> None:
        few = (0.5, 4.0) if quick else dissimilarity.DISTANCES
        dissimilarity.write(dissimilarity.compare(few, 30 if quick else 120, watch=watch), folder)

    def run_text(watch: Watch) -> None:
        authors = 20 if quick else text.AUTHORS
        found = text.compare(given.folder, 10 if quick else text.ROUNDS, authors, watch=watch)
        text.write(found, folder)

    def run_embeddings(watch: Watch) -> None:
        found = embeddings.compare(given.movielens, 15 if quick else embeddings.ROUNDS, watch=watch)
        embeddings.write(found, folder)

    return {
        "imbalance": run_imbalance,
        "dissimilarity": run_dissimilarity,
        "text": run_text,
        "embeddings": run_embeddings,
    }


def main() -> None:
    """Run the chosen parts and say where the results are."""
    given, console = parse(), Console()
    folder = given.results or (report.RESULTS / "quick" if given.quick else report.RESULTS)
    chosen = PARTS if given.part == "all" else (given.part,)
    if "text" in chosen and not (given.folder / text.POSTS).exists():
        console.print(f"{given.folder / text.POSTS} is not there: generated text stands in.")
    if "embeddings" in chosen and given.movielens is None:
        console.print("No --movielens FILE is given: generated users stand in.")
    for part in chosen:
        began = time.perf_counter()
        with progress_bar(console) as watch:
            jobs(given, folder)[part](watch)
        seconds = time.perf_counter() - began
        console.print(
            f"{part}: {seconds:.0f} s, tables and figures are in {os.path.relpath(folder)}"
        )


if __name__ == "__main__":
    main()
