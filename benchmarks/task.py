"""Write the task file of one problem: cohorts and batch order are those holdfast itself would use.

python benchmarks/task.py lr lognormal 10 task.npz
"""

import dataclasses
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))

import protocol
from problems import PROBLEMS, Problem, data, initial, sizes
from run_holdfast import settings

from holdfast.engine.experiment import Experiment


def make(problem: Problem, lognormal: bool, rounds: int) -> protocol.Task:
    """Data and weights of the problem, cohorts and orders of holdfast's own planner."""
    each = sizes(problem, lognormal)
    offsets = np.concatenate([[0], np.cumsum(each)])
    x, y = data(problem, int(offsets[-1]))
    params = initial(problem)
    experiment = Experiment(**settings(problem, x, y, offsets, params, "fedavg"))
    begin = experiment.begin()
    cohorts = [experiment.draw(dataclasses.replace(begin, round=t)) for t in range(rounds)]
    works = [experiment.planner.work(t, ids) for t, ids in enumerate(cohorts)]
    return protocol.Task(
        problem=problem,
        x=x,
        y=y,
        offsets=offsets,
        params=params,
        cohorts=np.stack(cohorts),
        batches=np.stack([np.asarray(work.batches) for work in works]),
        counts=np.stack([np.asarray(work.count) for work in works]),
    )


if __name__ == "__main__":
    name, kind, rounds, path = sys.argv[1:]
    make(PROBLEMS[name], kind == "lognormal", int(rounds)).save(Path(path))
