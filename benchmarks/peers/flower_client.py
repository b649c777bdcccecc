"""The client of Flower's simulation: an importable module, so that workers keep what it has loaded."""

import functools
from pathlib import Path

import numpy as np
import protocol
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch_methods import METHODS
from torch_models import Trainer, index, learnt, loaded, tensors

app = ClientApp()


@functools.lru_cache(maxsize=1)
def _loaded(path: str):
    torch.set_num_threads(1)  # one core a client, two clients at once
    task = protocol.Task.load(Path(path))
    module = loaded(task.problem, task.params)
    return task, tensors(task.x, task.y), module, Trainer(module, task.problem)


@app.train()
def train(message: Message, context: Context) -> Message:
    """One client's local steps; a method's row is kept in the client's own state."""
    config = message.content["config"]
    task, (x, y), module, trainer = _loaded(config["task"])
    t, slot = config["server-round"] - 1, config["slot"]
    names = list(learnt(module))
    received = message.content["arrays"].to_torch_state_dict()
    server = [received[name] for name in names]
    method = METHODS[config["method"]](server, task.problem)
    row, told = method.zeros(), []
    if "row" in context.state:
        row = list(context.state["row"].to_torch_state_dict().values())
    if "told" in message.content:
        told = list(message.content["told"].to_torch_state_dict().values())
    batches = ((x[r], y[r]) for r in index(task.rows(t, slot)))
    delta = trainer.train(server, batches, method.linear(row, told), method.pull)
    change = method.change(delta, told, int(task.counts[t, slot]))
    size = int(task.sizes[task.cohorts[t, slot]])
    weight = size if config["method"] in protocol.BY_EXAMPLES else 1
    model = {name: p.detach() for name, p in learnt(module).items()}
    content = RecordDict(
        {"arrays": ArrayRecord(model), "metrics": MetricRecord({"num-examples": weight})}
    )
    if change:
        new = {name: r + c for name, r, c in zip(names, row, change, strict=True)}
        context.state["row"] = ArrayRecord(new)
    if method.uploads:
        content["change"] = ArrayRecord(dict(zip(names, change, strict=True)))
    return Message(content=content, reply_to=message)


def numpy_state(arrays: ArrayRecord) -> dict[str, np.ndarray]:
    """Named arrays of a record."""
    return {name: array.numpy() for name, array in arrays.items()}
