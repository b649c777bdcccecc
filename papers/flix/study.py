"""FLIX: every client uses a mixture of its own optimum and a global model trained for mixtures.

Four parts; of each a table (Markdown) and figures go to papers/flix/results:

  regularised    logistic regression with a penalty: GD, DIANA and DCGD for several alpha and k
                 (the paper's figures 2, 3 and 7 to 10)
  unregularised  the same without a penalty: convex, but not strongly (figures 11 to 14)
  sine           fitting sine functions: which alpha generalises best (figures 4 and 15)
  meta           against FOMAML and Reptile (figure 1)

The first two read LIBSVM's mushrooms, a6a and ijcnn1 from libsvm/ below --folder, and generate data
of the same shape where a file is absent. The paper's fourth data set, w6a, is run with --data w6a if
you have the file.

examples:
  python -m papers.flix.study regularised                  about four minutes of processor time
  python -m papers.flix.study unregularised --data ijcnn1  one data set
  python -m papers.flix.study all --quick                  everything in small: does it run?
"""

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path

import jax
from rich.console import Console

from papers.flix import data, logistic, report
from papers.mixed.study import progress_bar

AVAILABLE = ("mushrooms", "a6a", "ijcnn1")  # of the paper's four data sets


def parse() -> argparse.Namespace:
    """What to run."""
    parser = argparse.ArgumentParser(
        prog="python -m papers.flix.study",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("part", nargs="?", default="all", choices=[*PARTS, "all"])
    parser.add_argument("--quick", action="store_true", help="a few rounds of each, to try it out")
    parser.add_argument(
        "--data",
        nargs="+",
        choices=sorted(data.SHAPES),
        metavar="NAME",
        help=f"data sets of the first two parts, of {', '.join(data.SHAPES)} "
        f"(default: {' '.join(AVAILABLE)}, with --quick the first)",
    )
    parser.add_argument(
        "--folder", type=Path, default=Path("../shared/data"), help="data (default: ../shared/data)"
    )
    parser.add_argument(
        "--results", type=Path, help="where tables and figures go (default: beside this file)"
    )
    return parser.parse_args()


def run_logistic(study: logistic.Study, name: str) -> Callable[..., str]:
    """One of the two studies of logistic regression, in 64 bits: gaps get as small as 1e-12."""

    def run(given: argparse.Namespace, results: Path, console: Console) -> str:
        chosen = given.data or (AVAILABLE[:1] if given.quick else AVAILABLE)
        wanted = logistic.smaller(study) if given.quick else study
        with jax.enable_x64(True), progress_bar(console) as watch:
            found = logistic.compare(wanted, chosen, given.folder, watch)
            text = report.present(found, results, name)
        if found.generated:
            console.print(f"Not found, so generated: {', '.join(found.generated)}.")
        return text

    return run


def run_sine(given: argparse.Namespace, results: Path, console: Console) -> str:
    """Fitting sine functions."""
    from papers.flix import sine

    with progress_bar(console) as watch:
        return sine.run(given.folder, results, given.quick, watch)


def run_meta(given: argparse.Namespace, results: Path, console: Console) -> str:
    """Against FOMAML and Reptile."""
    from papers.flix import meta

    with progress_bar(console) as watch:
        return meta.run(given.folder, results, given.quick, watch)


PARTS: dict[str, Callable[[argparse.Namespace, Path, Console], str]] = {
    "regularised": run_logistic(logistic.REGULARISED, "regularised"),
    "unregularised": run_logistic(logistic.UNREGULARISED, "unregularised"),
    "sine": run_sine,
    "meta": run_meta,
}


def main() -> None:
    """Run the chosen parts and say where the results are."""
    given, console = parse(), Console()
    results = given.results or (report.RESULTS / "quick" if given.quick else report.RESULTS)
    for part in PARTS if given.part == "all" else (given.part,):
        began = time.perf_counter()
        PARTS[part](given, results, console)
        seconds = time.perf_counter() - began
        console.print(
            f"{part}: {seconds:.0f} s, tables and figures are in {os.path.relpath(results)}"
        )


if __name__ == "__main__":
    main()
