"""Flower's simulation (ray): its FedAvg strategy, one core a client; FedDyn as a strategy on top of it."""

import logging
import os
import time

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}

import protocol
import torch
from flower_client import app, numpy_state
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch_models import from_torch, learnt, loaded


class Given(FedAvg):
    """FedAvg with the cohorts of the task: the nodes, in the order of their numbers, are its clients."""

    def __init__(self, task, asked, watch):
        super().__init__(fraction_evaluate=0.0)
        self.task, self.asked, self.watch = task, asked, watch
        self.memory, self.arrays = 0, None

    def configure_train(self, server_round, arrays, config, grid):
        self.arrays = arrays
        while len(nodes := sorted(grid.get_node_ids())) < self.task.population:
            time.sleep(0.01)  # they register as the simulation starts
        for slot, client in enumerate(self.task.cohorts[server_round - 1].tolist()):
            told = ConfigRecord(
                {
                    "server-round": server_round,
                    "slot": slot,
                    "method": self.asked.method,
                    "task": str(self.asked.task),
                }
            )
            yield Message(
                content=RecordDict({"arrays": arrays, "config": told}),
                message_type=MessageType.TRAIN,
                dst_node_id=nodes[client],
            )

    def aggregate_train(self, server_round, replies):
        arrays, metrics = self.combine(*super().aggregate_train(server_round, replies))
        self.watch.lap()
        self.memory = max(self.memory, protocol.anonymous_memory_of_descendants())
        return arrays, metrics

    def combine(self, arrays, metrics):
        """What a method makes of the mean model."""
        return arrays, metrics


class FedDyn(Given):
    """The mean model moved on by h."""

    h = None

    def combine(self, arrays, metrics):
        before, mean = numpy_state(self.arrays), numpy_state(arrays)
        if self.h is None:
            self.h = {name: 0 * a for name, a in mean.items()}
        moved = {}
        for name, a in mean.items():
            self.h[name] = self.h[name] + self.task.share * (a - before[name])
            moved[name] = torch.from_numpy(a + self.h[name].astype(a.dtype))
        return ArrayRecord(moved), metrics


def main() -> None:
    """Run and measure."""
    asked = protocol.options()
    watch = protocol.Watch(asked.started)
    logging.getLogger("flwr").setLevel(logging.WARNING)
    task = protocol.Task.load(asked.task)
    strategy = (Given if asked.method == "fedavg" else FedDyn)(task, asked, watch)
    first = {n: p.detach() for n, p in learnt(loaded(task.problem, task.params)).items()}
    server, results = ServerApp(), []

    @server.main()
    def serve(grid, context):
        results.append(strategy.start(grid, ArrayRecord(first), num_rounds=asked.rounds))

    run_simulation(
        server,
        app,
        num_supernodes=task.population,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"include_dashboard": False, "log_to_driver": False},
        },
    )
    final = results[0].arrays.to_torch_state_dict()
    protocol.finish(asked, watch, from_torch(task.problem, final), strategy.memory)


if __name__ == "__main__":
    main()
