"""Flower's simulation (ray): its FedAvg strategy, one core a client; other methods as a step on top of it."""

import logging
import os
import time

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}

import numpy as np
import protocol
import torch
from flower_client import app, numpy_state
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch_methods import METHODS
from torch_models import from_torch, learnt, loaded


class Given(FedAvg):
    """FedAvg with the cohorts of the task: the nodes, in the order of their numbers, are its clients.

    What a method adds to it is its step on the mean model, and the mean of what clients change their rows by.
    """

    def __init__(self, path, task, name, after):
        super().__init__(fraction_evaluate=0.0)
        self.path, self.task, self.name, self.after = path, task, name, after
        first = learnt(loaded(task.problem, task.params))
        self.first = {n: p.detach() for n, p in first.items()}
        self.method = METHODS[name](list(self.first.values()), task.problem)
        self.memory, self.arrays = 0, None

    def configure_train(self, server_round, arrays, config, grid):
        self.arrays = arrays
        while len(nodes := sorted(grid.get_node_ids())) < self.task.population:
            time.sleep(0.01)  # they register as the simulation starts
        told = dict(zip(self.first, self.method.told(), strict=False))
        for slot, client in enumerate(self.task.cohorts[server_round - 1].tolist()):
            config = ConfigRecord(
                {
                    "server-round": server_round,
                    "slot": slot,
                    "method": self.name,
                    "task": str(self.path),
                }
            )
            content = {"arrays": arrays, "config": config}
            if told:
                content["told"] = ArrayRecord(told)
            yield Message(
                content=RecordDict(content),
                message_type=MessageType.TRAIN,
                dst_node_id=nodes[client],
            )

    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        changes = [r.content.pop("change") for r in replies if "change" in r.content]
        arrays, metrics = super().aggregate_train(server_round, replies)
        if self.name != "fedavg":
            arrays = self.moved(arrays, [list(numpy_state(c).values()) for c in changes])
        self.after(arrays)
        self.memory = max(self.memory, protocol.anonymous_memory_of_descendants())
        return arrays, metrics

    def moved(self, arrays, changes):
        """What a method makes of the mean model."""
        before, mean = numpy_state(self.arrays), numpy_state(arrays)
        delta = [torch.from_numpy(mean[n] - before[n]) for n in self.first]
        heard = [torch.from_numpy(np.mean(leaves, axis=0)) for leaves in zip(*changes, strict=True)]
        move = self.method.step(delta, heard, self.task.share)
        return ArrayRecord(
            {n: torch.from_numpy(before[n]) + m for n, m in zip(self.first, move, strict=True)}
        )


def train(path, task, method, rounds, after):
    """The final arrays, and the most that workers had in memory."""
    strategy = Given(path, task, method, after)
    server, results = ServerApp(), []

    @server.main()
    def serve(grid, context):
        results.append(strategy.start(grid, ArrayRecord(strategy.first), num_rounds=rounds))

    run_simulation(
        server,
        app,
        num_supernodes=task.population,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"include_dashboard": False, "log_to_driver": False},
        },
    )
    return results[0].arrays, strategy.memory


def main() -> None:
    """Run and measure."""
    asked = protocol.options()
    watch = protocol.Watch(asked.started)
    logging.getLogger("flwr").setLevel(logging.WARNING)
    task = protocol.Task.load(asked.task)
    lap = lambda arrays: watch.lap()  # noqa: E731
    arrays, memory = train(asked.task, task, asked.method, asked.rounds, lap)
    protocol.finish(asked, watch, from_torch(task.problem, arrays.to_torch_state_dict()), memory)


if __name__ == "__main__":
    main()
