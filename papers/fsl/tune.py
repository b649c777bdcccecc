"""Step sizes for the study, on a fifth of the training data held out; the test data is not touched.

Every method gets the same grid of client step sizes. FedAvg, SCAFFOLD and what is made from them
choose between eta_g = 1 and the paper's root of the cohort, FedDyn and FedDC between three alphas.
The weight gamma stays at the paper's value. What reaches the harder target first, on average over
seeds that the study does not use, is taken.

Prints the table that goes into settings.py: python -m papers.fsl.tune
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from papers.fsl import data
from papers.fsl.settings import ON_CLASSES, PLANS, PLUS, Setting, Steps, method
from papers.fsl.study import Divide, Job, divide_by_classes, divide_by_dirichlet, run_all

RATES = (0.03, 0.1, 0.3, 0.6)
ALPHAS = (0.01, 0.03, 0.1)
FIRST_SEED = 100  # the study's begin at 0


def candidates(name: str, setting: Setting) -> Iterator[Steps]:
    """The grid of one method."""
    for rate in RATES:
        if name.startswith(("FedDyn", "FedDC")):
            yield from (Steps(rate, alpha=alpha) for alpha in ALPHAS)
        else:
            yield from (Steps(rate, eta_g) for eta_g in (1.0, round(setting.root_of_cohort, 3)))


def score(
    name: str,
    steps: Steps,
    setting: Setting,
    divisions: Sequence[Divide],
    split: data.Split,
    seeds: Sequence[int],
) -> tuple[float, float]:
    """Mean rounds to the harder target (one more than all if never), then minus final accuracy."""
    jobs = [
        Job("tuning", name, method(name, steps), setting, divide, seed)
        for divide in divisions
        for seed in seeds
    ]
    curves = run_all(jobs, split)
    reached = [c.rounds_to(setting.targets[-1]) or setting.rounds + 1 for c in curves]
    return float(np.mean(reached)), -float(np.mean([c.final for c in curves]))


def main() -> None:
    """Print the best step sizes of every method."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--data", choices=sorted(PLANS), default="digits")
    options.add_argument("--folder", type=Path, default=data.DEFAULT_FOLDER)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--only", choices=(*ON_CLASSES, *PLUS), nargs="+", help="some methods")
    chosen = options.parse_args()
    seeds = range(FIRST_SEED, FIRST_SEED + chosen.seeds)
    plan = PLANS[chosen.data]
    train, _ = data.load(chosen.data, chosen.folder)
    split = data.hold_out(train, 0.2, seed=FIRST_SEED)
    by_classes = [divide_by_classes(plan.few.clients, c) for c in (1, 2)]
    by_dirichlet = [divide_by_dirichlet(plan.many.clients, 0.1)]
    for names, setting, divisions in (
        (ON_CLASSES, plan.few, by_classes),
        (PLUS, plan.many, by_dirichlet),
    ):
        for name in (n for n in names if n in (chosen.only or names)):
            found = {
                s: score(name, s, setting, divisions, split, seeds)
                for s in candidates(name, setting)
            }
            best = min(found, key=found.__getitem__)
            rounds, final = found[best]
            print(f'"{name}": {best},  # {rounds:.1f} rounds, {-final:.1%}', flush=True)


if __name__ == "__main__":
    main()
