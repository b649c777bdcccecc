"""Write the task file of one problem: cohorts and batch order are those holdfast itself would use.

python benchmarks/task.py lr lognormal 10 task.npz
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))

import protocol
from problems import PROBLEMS, Problem, data, initial, sizes
from run_holdfast import settings

import holdfast as hf
from holdfast.engine.plan import draw
from holdfast.engine.setup import checked


def make(problem: Problem, lognormal: bool, rounds: int) -> protocol.Task:
    """Data and weights of the problem, cohorts and orders of holdfast's own planner."""
    each = sizes(problem, lognormal)
    offsets = np.concatenate([[0], np.cumsum(each)])
    x, y = data(problem, int(offsets[-1]))
    params = initial(problem)
    setup = checked(hf.Experiment(**settings(problem, x, y, offsets, params, "fedavg")))
    seed, batches = setup.experiment.seed, setup.batches
    cohorts = [draw(setup.cohort, batches, seed, t) for t in range(rounds)]
    slots = [batches.slots(t, ids) for t, ids in enumerate(cohorts)]
    return protocol.Task(
        problem=problem,
        x=x,
        y=y,
        offsets=offsets,
        params=params,
        cohorts=np.stack(cohorts),
        batches=np.stack([np.asarray(one.batches) for one in slots]),
        counts=np.stack([np.asarray(one.steps) for one in slots]),
    )


if __name__ == "__main__":
    name, kind, rounds, path = sys.argv[1:]
    make(PROBLEMS[name], kind == "lognormal", int(rounds)).save(Path(path))
