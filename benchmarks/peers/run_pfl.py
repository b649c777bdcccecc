"""pfl-research: its simulated backend and FedAvg; FedDyn, which it does not ship, as an algorithm of it.

Its SCAFFOLD keeps the server's control variate at zero with option II (the row is changed in place before
the difference is taken), so there is no stateful method of its own to time.
"""

import protocol
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDatasetBase
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch.nn import functional
from torch_methods import METHODS
from torch_models import from_torch, index, learnt, loaded, tensors, tilt


class Ordered(Dataset):
    """A client's data in the order of the task; its length is the number of examples it has."""

    def __init__(self, size, batches, user_id):
        super().__init__(raw_data=(), user_id=user_id)
        self.size, self.batches = size, batches

    def __len__(self):
        return self.size

    def iter(self, batch_size):
        return iter(self.batches)


class Cohorts(FederatedDatasetBase):
    """The cohorts of the task, round by round."""

    def __init__(self, task):
        super().__init__()
        self.task, self.t = task, 0
        self.x, self.y = tensors(task.x, task.y)

    def __next__(self):
        raise NotImplementedError("the task has cohorts, not single clients")

    def get_cohort(self, cohort_size):
        t, self.t = self.t, self.t + 1
        for slot, client in enumerate(self.task.cohorts[t].tolist()):
            rows = index(self.task.rows(t, slot))
            batches = [(self.x[r], self.y[r]) for r in rows]
            yield Ordered(int(self.task.sizes[client]), batches, str(client)), 0


class Tilted(FederatedAveraging):
    """A method with rows at clients, and more terms in every gradient."""

    def __init__(self, method, share):
        super().__init__()
        self.method, self.share = method, share
        self.rows, self.heard, self.told = {}, [], []

    def get_next_central_contexts(self, *given, **more):
        self.heard, self.told = [], self.method.told()
        return super().get_next_central_contexts(*given, **more)

    def train_one_user(self, initial_model_state, model, user_dataset, central_context):
        params = learnt(model.pytorch_model)
        server = [initial_model_state[name] for name in params]
        row = self.rows.get(user_dataset.user_id) or self.method.zeros()
        linear = self.method.linear(row, self.told)

        def step(module, optimizer, batch, train_kwargs, train_step_args):
            optimizer.zero_grad()
            module.loss(*batch).backward()
            tilt(params.values(), server, linear, self.method.pull)
            optimizer.step()

        model.do_multiple_epochs_of(user_dataset, central_context.model_train_params, step)
        delta = model.get_model_difference(initial_model_state)
        steps = len(user_dataset.batches)
        change = self.method.change([delta[name] for name in params], self.told, steps)
        if change:
            self.rows[user_dataset.user_id] = [r + c for r, c in zip(row, change, strict=True)]
        if self.method.uploads:
            self.heard.append(change)
        return delta, Metrics()

    def process_aggregated_statistics(self, central_context, aggregate_metrics, model, statistics):
        statistics.average()
        names = list(learnt(model.pytorch_model))
        mean = [statistics[name] for name in names]
        heard = [sum(leaves) / len(self.heard) for leaves in zip(*self.heard, strict=True)]
        for name, move in zip(names, self.method.step(mean, heard, self.share), strict=True):
            statistics[name] = move
        return model.apply_model_update(statistics)


class Lap(TrainingProcessCallback):
    """Tells somebody that a round is over."""

    def __init__(self, after):
        self.after = after

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self.after(model.pytorch_model)
        return False, Metrics()


def train(task, method, rounds, after):
    """The model after so many rounds; `after` is called with it at the end of each."""
    problem = task.problem
    module = loaded(problem, task.params)
    # pfl asks the module itself for its loss.
    module.loss = lambda x, y: functional.cross_entropy(module(x), y)
    module.metrics = lambda x, y: {}
    params = list(learnt(module).values())
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(params, lr=1.0))
    data = Cohorts(task)
    like = [p.detach().clone() for p in params]
    tilted = Tilted(METHODS[method](like, problem), task.share)
    backend = SimulatedBackend(
        training_data=data,
        val_data=data,
        postprocessors=[WeightByDatapoints()] if method in protocol.BY_EXAMPLES else [],
    )
    (FederatedAveraging() if method == "fedavg" else tilted).run(
        NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=rounds + 1,
            train_cohort_size=problem.cohort,
            val_cohort_size=0,
        ),
        backend,
        model,
        NNTrainHyperParams(
            local_num_epochs=1,  # the task's order has all passes in it
            local_learning_rate=problem.learning_rate,
            local_batch_size=problem.batch_size,
        ),
        callbacks=[Lap(after)],
    )
    return module


def main() -> None:
    """Run and measure."""
    asked = protocol.options()
    watch = protocol.Watch(asked.started)
    torch.set_num_threads(int(asked.variant))
    task = protocol.Task.load(asked.task)
    module = train(task, asked.method, asked.rounds, lambda module: watch.lap())
    protocol.finish(asked, watch, from_torch(task.problem, dict(learnt(module))))


if __name__ == "__main__":
    main()
