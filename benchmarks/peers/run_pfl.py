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
from torch_models import add_dynamic, from_torch, index, learnt, loaded, tensors


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


class FedDyn(FederatedAveraging):
    """Rows h_i, the server's h, and one more term in every gradient."""

    def __init__(self, alpha, share):
        super().__init__()
        self.alpha, self.share = alpha, share
        self.rows, self.h = {}, None

    def train_one_user(self, initial_model_state, model, user_dataset, central_context):
        params = learnt(model.pytorch_model)
        server = [initial_model_state[name] for name in params]
        zeros = [torch.zeros_like(p) for p in server]
        row = self.rows.setdefault(user_dataset.user_id, zeros)

        def step(module, optimizer, batch, train_kwargs, train_step_args):
            optimizer.zero_grad()
            module.loss(*batch).backward()
            add_dynamic(params.values(), server, row, self.alpha)
            optimizer.step()

        model.do_multiple_epochs_of(user_dataset, central_context.model_train_params, step)
        delta = model.get_model_difference(initial_model_state)
        for r, name in zip(row, params, strict=True):
            r += delta[name]
        return delta, Metrics()

    def process_aggregated_statistics(self, central_context, aggregate_metrics, model, statistics):
        statistics.average()
        if self.h is None:
            self.h = statistics.apply_elementwise(torch.zeros_like)
        self.h += statistics.apply_elementwise(lambda a: self.share * a)
        statistics += self.h
        return model.apply_model_update(statistics)


class Lap(TrainingProcessCallback):
    """Tells the watch that a round is over."""

    def __init__(self, watch):
        self.watch = watch

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self.watch.lap()
        return False, Metrics()


def main() -> None:
    """Run and measure."""
    asked = protocol.options()
    watch = protocol.Watch(asked.started)
    torch.set_num_threads(int(asked.variant))
    task = protocol.Task.load(asked.task)
    problem = task.problem
    module = loaded(problem, task.params)
    # pfl asks the module itself for its loss.
    module.loss = lambda x, y: functional.cross_entropy(module(x), y)
    module.metrics = lambda x, y: {}
    params = list(learnt(module).values())
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(params, lr=1.0))
    data = Cohorts(task)
    averaging = asked.method == "fedavg"
    algorithm = FederatedAveraging() if averaging else FedDyn(problem.alpha, task.share)
    backend = SimulatedBackend(
        training_data=data,
        val_data=data,
        postprocessors=[WeightByDatapoints()] if averaging else [],
    )
    algorithm.run(
        NNAlgorithmParams(
            central_num_iterations=asked.rounds,
            evaluation_frequency=asked.rounds + 1,
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
        callbacks=[Lap(watch)],
    )
    protocol.finish(asked, watch, from_torch(problem, dict(learnt(module))))


if __name__ == "__main__":
    main()
