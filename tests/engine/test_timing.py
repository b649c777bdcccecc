"""What counts as running and what as compiling, by a clock that only engines move."""

import dataclasses
import time

import holdfast as hf
from tests.problems import QUADRATIC, random_quadratics

PREPARING, RUNNING = 100.0, 10.0


@dataclasses.dataclass
class Clock:
    now: float = 0.0

    def __call__(self):
        return self.now


def test_compiling_a_preparation_is_no_part_of_running(x64, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)

    class Slow(hf.CompiledEngine):
        def prepare(self, t, inputs):
            clock.now += PREPARING
            return super().prepare(t, inputs)

        def round(self, t, inputs, placement):
            clock.now += RUNNING
            return super().round(t, inputs, placement)

    # A population of a size that no other test has, so that there is something to compile.
    clients, _ = random_quadratics(3, clients=13)
    by, local = (
        hf.algorithms.flix(0.5, solver=hf.solvers.GradientDescent(0.2)),
        hf.Local(0.1, steps=1),
    )
    first, second = (
        hf.simulate(by, QUADRATIC, clients, local, rounds=1, engine=Slow()).history[0]
        for _ in range(2)
    )
    assert (first["compile_seconds"], first["seconds"]) == (PREPARING + RUNNING, 0.0)
    assert (second["compile_seconds"], second["seconds"]) == (0.0, PREPARING + RUNNING)
