"""Methods that correct client drift."""

from typing import Literal

from holdfast.algorithms.parts import chain, choose, server_step
from holdfast.core.algorithm import Algorithm, Weighting
from holdfast.core.auto_mask import AUTO
from holdfast.core.combinators import Chain, Masked, Uploaded
from holdfast.core.hyper import Hyper
from holdfast.core.rule import Rule
from holdfast.errors import explain_arguments
from holdfast.rules import ControlVariate, Dynamic, GradientControlVariate, SplitActive, SplitAll
from holdfast.trees import Mask

Upload = Literal["lean", "published"]


@explain_arguments
def scaffold(
    option: Literal["I", "II"] = "II",
    upload: Upload = "lean",
    server_learning_rate: Hyper | None = None,
    damping: Hyper | None = None,
    weighting: Weighting = "uniform",
) -> Algorithm:
    r"""Control variates against client drift.

    $$ y \leftarrow y - \eta\,(g_i(y) + c - c_i), \quad x \leftarrow x + \eta_g\,\overline{d} $$

    Travels: the model and c down; up, delta alone (`"lean"`, 1.5 times FedAvg) or the change of
    $c_i$ too (`"published"`, twice FedAvg). Both give the same models.

    Tells: with delta, and the number of steps, which the server knows, the change of $c_i$: from the first
    round on they add up to $c_i$, the client's mean gradient; with option `"I"` its exact gradient at x is
    uploaded. With `hf.privacy` the change of $c_i$ is uploaded and bounded together with delta, so that most
    of the joint norm is the control variate's.

    Args:
        option: how $c_i$ is renewed: `"II"` from the local steps, `"I"` by a full gradient at x
            (which must be uploaded, so `upload` has no say).
        upload: `"lean"` or `"published"`.
        server_learning_rate: $\eta_g$, 1 unless given.
        damping: a factor to every change of c and $c_i$, for wires that add noise.
        weighting: means by number of `"examples"`, or `"uniform"`ly as published: whose minimiser is found
            where clients have unequal data.

    Reduces to: FedAvg in its first round; FedPVR with a full mask.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=10)
        >>> for algorithm in (hf.algorithms.fedavg(), hf.algorithms.scaffold()):
        ...     run = hf.simulate(algorithm, model, clients, local, rounds=20)
        ...     w = run.params["weights"].item()
        ...     print(f"{algorithm.name} {w:.2f}, {run.ledger.total} bytes")
        fedavg 1.60, 320 bytes
        scaffold 1.80, 480 bytes

    Reference: Karimireddy et al., "SCAFFOLD", ICML 2020; lean upload: FSL, appendix B.
    """
    lean: Rule = ControlVariate(damping)
    second = choose("scaffold", "upload", upload, {"lean": lean, "published": Uploaded(lean)})
    rule = choose(
        "scaffold", "option", option, {"I": GradientControlVariate(damping), "II": second}
    )
    whole = chain(rule, *server_step(server_learning_rate))
    return Algorithm(whole, weighting=weighting, name="scaffold")


@explain_arguments
def fedpvr(
    mask: Mask | Literal["auto"],
    upload: Upload = "lean",
    server_learning_rate: Hyper | None = None,
    weighting: Weighting = "uniform",
) -> Algorithm:
    r"""Partial variance reduction: SCAFFOLD on the last layers, plain SGD on the others.

    $$ y_m \leftarrow y_m - \eta\,(g_i(y) + c - c_i)_m, \quad
       y_{\bar m} \leftarrow y_{\bar m} - \eta\, g_i(y)_{\bar m} $$

    Travels: the model and the masked part of c down; up, delta (`"lean"`: 1 + half the masked
    share, relative to FedAvg) or the change of $c_i$ too (`"published"`: 1 + the masked share).

    Tells: the same as SCAFFOLD of the masked leaves, $c_i$ being the client's mean gradient there. With
    `hf.privacy` its change is uploaded and bounded together with delta.

    Args:
        mask: leaves to correct: one bool per leaf, or a function of the leaf's path. `"auto"`: the first
            round is FedAvg's, and its drift diversity chooses the layers (`run.chosen_mask`).
        upload: `"lean"` or `"published"`.
        server_learning_rate: $\eta_g$, 1 unless given.
        weighting: means by number of `"examples"`, or `"uniform"`ly as published: whose minimiser is found
            where clients have unequal data.

    Reduces to: FedAvg (of the same weighting) with an empty mask, SCAFFOLD with a full one, bit for bit.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Clients agree on the intercept 3, but their slopes are 1 and 2: together 1.8.
        >>> x, y = np.array([[-1.0], [1.0], [-2.0], [2.0]]), np.array([2.0, 4.0, -1.0, 7.0])
        >>> clients = hf.data.partition.in_order(hf.Examples(x, y), clients=2)
        >>> model = hf.models.least_squares()
        >>> local = hf.Local(learning_rate=0.1, steps=10)
        >>> algorithm = hf.algorithms.fedpvr(mask=lambda path: path == "weights")
        >>> run = hf.simulate(algorithm, model, clients, local, rounds=20)
        >>> # FedAvg ends at 1.60 after 640 bytes, SCAFFOLD at 1.80 after 960.
        >>> print(f"{run.params['weights'].item():.2f}, {run.ledger.total} bytes")
        1.80, 800 bytes

    Reference: Li et al., "On the effectiveness of partial variance reduction in federated
    learning with heterogeneous data", CVPR 2023.
    """
    lean: Rule = ControlVariate()
    inner = choose("fedpvr", "upload", upload, {"lean": lean, "published": Uploaded(lean)})
    chosen: Mask = choose("fedpvr", "mask", mask, {"auto": AUTO}) if isinstance(mask, str) else mask
    rule = chain(Masked(inner, chosen), *server_step(server_learning_rate))
    return Algorithm(rule, weighting=weighting, name="fedpvr")


@explain_arguments
def feddyn(alpha: Hyper, weighting: Weighting = "uniform") -> Algorithm:
    r"""Dynamic regularisation: local optima come to agree with the global one.

    $$ \min_y f_i(y) + \alpha\langle h_i, y\rangle + \tfrac{\alpha}{2}\|y - x\|^2, \quad
       x \leftarrow x + \overline{d} + h $$

    Travels: the model down, delta up.

    Args:
        alpha: strength of the regulariser.
        weighting: means by number of `"examples"`, or `"uniform"`ly as published: whose minimiser is found
            where clients have unequal data.
            The authors' code divides alpha by a client's share of the data instead, which ends at
            the same minimiser (`papers/feddyn/authors.py`).

    Reduces to: FedAvg's local steps at `alpha=0`, where the server still adds h.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=10)
        >>> for algorithm in (hf.algorithms.fedavg(), hf.algorithms.feddyn(alpha=1.0)):
        ...     run = hf.simulate(algorithm, model, clients, local, rounds=20)
        ...     w = run.params["weights"].item()
        ...     print(f"{algorithm.name} {w:.2f}, {run.ledger.total} bytes")
        fedavg 1.60, 320 bytes
        feddyn 1.80, 320 bytes

    Reference: Acar et al., "Federated learning based on dynamic regularization", ICLR 2021.
    """
    return Algorithm(Dynamic(alpha), weighting=weighting, name="feddyn")


@explain_arguments
def feddc(alpha: Hyper, weighting: Weighting = "uniform") -> Algorithm:
    r"""SCAFFOLD's and FedDyn's corrections at once.

    $$ y \leftarrow y - \eta\,\big(g_i(y) + c - c_i + \alpha(y - x + h_i)\big) $$

    Travels: the model and c down, delta up.

    Tells: delta, and by it and the number of steps the client's $c_i$ and $h_i$. With `hf.privacy` the change
    of $c_i$ is uploaded and bounded together with delta.

    Args:
        alpha: strength of the regulariser.
        weighting: means by number of `"examples"`, or `"uniform"`ly as published: whose minimiser is found
            where clients have unequal data.

    Reduces to: SCAFFOLD's local steps at `alpha=0`.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=10)
        >>> for algorithm in (hf.algorithms.fedavg(), hf.algorithms.feddc(alpha=1.0)):
        ...     run = hf.simulate(algorithm, model, clients, local, rounds=20)
        ...     w = run.params["weights"].item()
        ...     print(f"{algorithm.name} {w:.2f}, {run.ledger.total} bytes")
        fedavg 1.60, 320 bytes
        feddc 1.80, 480 bytes

    Reference: Gao et al., "FedDC", CVPR 2022.
    """
    rule = Chain((ControlVariate(), Dynamic(alpha)))
    return Algorithm(rule, weighting=weighting, name="feddc")


@explain_arguments
def fedsplit(
    step_size: Hyper,
    average: Literal["all", "active"] = "active",
    weighting: Weighting = "uniform",
) -> Algorithm:
    r"""Peaceman-Rachford splitting, extended to partial participation.

    $$ \min_y f_i(y) + \tfrac{1}{2s}\|y - (2x - z_i)\|^2, \quad z_i \leftarrow z_i + 2(y_i - x) $$

    Travels: the model down, one model up.

    Tells: from all its replies, $z_i$, the client's gradient at the solution.

    Args:
        step_size: s, the step of the proximal operator.
        average: the server's model is the mean of the `"active"` clients' $z_i$, or of `"all"`.
        weighting: means by number of `"examples"`, or `"uniform"`ly as published: whose minimiser is found
            where clients have unequal data.

    Reduces to: the same method for both averages under full participation.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=10)
        >>> for average in ("all", "active"):
        ...     algorithm = hf.algorithms.fedsplit(step_size=0.5, average=average)
        ...     one = hf.cohorts.fixed(1)
        ...     run = hf.simulate(algorithm, model, clients, local, rounds=60, cohort=one)
        ...     print(f"{average}: {run.params['weights'].item():.2f}")
        all: 1.80
        active: 1.07

    Reference: Pathak and Wainwright, "FedSplit", NeurIPS 2020; FedDyn, appendix A.4.
    """
    rules = {"active": SplitActive(step_size), "all": SplitAll(step_size)}
    rule = choose("fedsplit", "average", average, rules)
    return Algorithm(rule, weighting=weighting, name="fedsplit")
