"""Peak memory of holdfast and of the PyTorch loop on the same tasks, line by line. Nothing is timed.

python benchmarks/memory.py --only mlp,cnn
"""

import tempfile
from pathlib import Path

import report
from rich.markdown import Markdown
from run import Bench, arguments, combinations, out
from sides import SIDES, Failed

GOAL = 1.2  # times the loop's
SHOWN = ("mlp", "cnn")  # unless --only says otherwise


def main() -> None:
    """Every line once per side; the loop with one thread, with which it takes least."""
    asked = arguments(only=SHOWN)
    asked.peers = ["holdfast", "torch"]
    rows, above = [], []
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        bench = Bench(asked, Path(folder))
        bench.build()
        for key in combinations(asked):
            ours, loop = (
                bench.one(SIDES[name], key, SIDES[name].variants[0]) for name in asked.peers
            )
            if isinstance(ours, Failed) or isinstance(loop, Failed):
                raise SystemExit(f"{' '.join(key)}: {ours if isinstance(ours, Failed) else loop}")
            ratio = ours.memory / loop.memory
            if ratio > GOAL:
                above.append(" ".join(key))
            figures = (report.megabytes(ours.memory), report.megabytes(loop.memory))
            rows.append([*key, *figures, f"{ratio:.2f}"])
    head = ("problem", "sizes", "method", "holdfast", "PyTorch loop", "ratio")
    out.print(Markdown("\n".join(report.table(head, rows))))
    if above:
        out.print(f"more than {GOAL} times the loop's: {', '.join(above)}")


if __name__ == "__main__":
    main()
