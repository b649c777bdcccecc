"""The names people search for, each a few lines over the rules."""

from typing import Any, Literal

import optax

from holdfast.algorithm import Algorithm, Weighting
from holdfast.combinators import Chain, Masked, ServerTurn, Uploaded
from holdfast.data.clients import Clients
from holdfast.errors import HoldfastError, did_you_mean, explain_arguments
from holdfast.rule import Rule
from holdfast.rules import (
    ControlVariate,
    Dynamic,
    GradientControlVariate,
    LocalOnly,
    OneWayTransfer,
    ParallelTraining,
    Proximal,
    ServerAsClient,
    ServerLearning,
    ServerOptimizer,
    SplitActive,
    SplitAll,
    TwoWayTransfer,
)
from holdfast.trees import Mask
from holdfast.wire import OnSite

__all__ = [
    "centralised",
    "fedadam",
    "fedavg",
    "fedavg_plus",
    "fedavgm",
    "feddc",
    "feddc_plus",
    "feddyn",
    "feddyn_plus",
    "fedprox",
    "fedpvr",
    "fedsplit",
    "fedyogi",
    "local_only",
    "one_way_transfer",
    "parallel_training",
    "scaffold",
    "scaffold_plus",
    "server_as_client",
    "two_way_transfer",
]


def _choose(owner: str, name: str, given: str, options: dict[str, Any]) -> Any:
    if given not in options:
        hint = did_you_mean(str(given), options)
        raise HoldfastError(f"{owner}: unknown {name} `{given}`; {hint}")
    return options[given]


def _scaled(rule: Rule, server_learning_rate: Any) -> Rule:
    """With a step size at the server; None is absent and free."""
    if server_learning_rate is None:
        return rule
    outer = ServerOptimizer(optax.sgd, {"learning_rate": server_learning_rate})
    return outer if rule == Rule() else Chain((rule, outer))


@explain_arguments
def fedavg(server_learning_rate: Any = None, weighting: Weighting = "examples") -> Algorithm:
    r"""Federated averaging: local steps, then the mean of the deltas.

    $$ x \leftarrow x + \eta_g \sum_i w_i\,(y_i - x) $$

    Travels: the model down, delta up: the unit of the ledger.

    Args:
        server_learning_rate: $\eta_g$, 1 unless given; a number or a schedule over rounds.
        weighting: mean by number of `"examples"`, or `"uniform"`.

    Reduces to: gradient descent with one full-batch step on every client.

    Example:
        >>> import holdfast as hf
        >>> hf.algorithms.fedavg().weighting
        'examples'

    Reference: McMahan et al., "Communication-efficient learning of deep networks", AISTATS 2017.
    """
    return Algorithm(_scaled(Rule(), server_learning_rate), weighting=weighting, name="fedavg")


@explain_arguments
def fedprox(mu: Any, weighting: Weighting = "examples") -> Algorithm:
    r"""FedAvg with a pull towards the model received.

    $$ \min_y f_i(y) + \tfrac{\mu}{2}\|y - x\|^2 $$

    Travels: the model down, delta up.

    Args:
        mu: strength of the pull.
        weighting: mean by number of `"examples"`, or `"uniform"`.

    Reduces to: FedAvg at `mu=0`, bit for bit.

    Example:
        >>> import holdfast as hf
        >>> hf.algorithms.fedprox(mu=0.01).rule
        Proximal(mu=0.01)

    Reference: Li et al., "Federated optimization in heterogeneous networks", MLSys 2020.
    """
    return Algorithm(Proximal(mu), weighting=weighting, name="fedprox")


Upload = Literal["lean", "published"]


@explain_arguments
def scaffold(
    option: Literal["I", "II"] = "II", upload: Upload = "lean", server_learning_rate: Any = None
) -> Algorithm:
    r"""Control variates against client drift.

    $$ y \leftarrow y - \eta\,(g_i(y) + c - c_i), \quad x \leftarrow x + \eta_g\,\overline{d} $$

    Travels: the model and c down; up, delta alone (`"lean"`, 1.5 times FedAvg) or the change of
    $c_i$ too (`"published"`, twice FedAvg). Both give the same models.

    Args:
        option: how $c_i$ is renewed: `"II"` from the local steps, `"I"` by a full gradient at x
            (which must be uploaded, so `upload` has no say).
        upload: `"lean"` or `"published"`.
        server_learning_rate: $\eta_g$, 1 unless given.

    Reduces to: FedAvg in its first round; FedPVR with a full mask.

    Example:
        >>> import holdfast as hf
        >>> hf.algorithms.scaffold().rule
        ControlVariate()

    Reference: Karimireddy et al., "SCAFFOLD", ICML 2020; lean upload: FSL, appendix B.
    """
    lean: Rule = ControlVariate()
    second = _choose("scaffold", "upload", upload, {"lean": lean, "published": Uploaded(lean)})
    rule = _choose("scaffold", "option", option, {"I": GradientControlVariate(), "II": second})
    return Algorithm(_scaled(rule, server_learning_rate), name="scaffold")


@explain_arguments
def fedpvr(mask: Mask, upload: Upload = "lean", server_learning_rate: Any = None) -> Algorithm:
    r"""Partial variance reduction: SCAFFOLD on the last layers, plain SGD on the others.

    $$ y_m \leftarrow y_m - \eta\,(g_i(y) + c - c_i)_m, \quad
       y_{\bar m} \leftarrow y_{\bar m} - \eta\, g_i(y)_{\bar m} $$

    Travels: the model and the masked part of c down; up, delta (`"lean"`: 1 + half the masked
    share, relative to FedAvg) or the change of $c_i$ too (`"published"`: 1 + the masked share).

    Args:
        mask: leaves to correct: one bool per leaf, or a function of the leaf's path.
        upload: `"lean"` or `"published"`.
        server_learning_rate: $\eta_g$, 1 unless given.

    Reduces to: FedAvg (uniform) with an empty mask, SCAFFOLD with a full one, bit for bit.

    Example:
        >>> import holdfast as hf
        >>> algorithm = hf.algorithms.fedpvr(mask=lambda path: path.startswith("classifier"))

    Reference: Li et al., "On the effectiveness of partial variance reduction in federated
    learning with heterogeneous data", CVPR 2023.
    """
    lean: Rule = ControlVariate()
    inner = _choose("fedpvr", "upload", upload, {"lean": lean, "published": Uploaded(lean)})
    return Algorithm(_scaled(Masked(inner, mask), server_learning_rate), name="fedpvr")


@explain_arguments
def feddyn(alpha: Any) -> Algorithm:
    r"""Dynamic regularisation: local optima come to agree with the global one.

    $$ \min_y f_i(y) + \alpha\langle h_i, y\rangle + \tfrac{\alpha}{2}\|y - x\|^2, \quad
       x \leftarrow x + \overline{d} + h $$

    Travels: the model down, delta up.

    Args:
        alpha: strength of the regulariser.

    Reduces to: `Dynamic(alpha)` alone.

    Example:
        >>> import holdfast as hf
        >>> hf.algorithms.feddyn(alpha=0.1).rule
        Dynamic(alpha=0.1)

    Reference: Acar et al., "Federated learning based on dynamic regularization", ICLR 2021.
    """
    return Algorithm(Dynamic(alpha), name="feddyn")


@explain_arguments
def feddc(alpha: Any) -> Algorithm:
    r"""SCAFFOLD's and FedDyn's corrections at once.

    $$ y \leftarrow y - \eta\,\big(g_i(y) + c - c_i + \alpha(y - x + h_i)\big) $$

    Travels: the model and c down, delta up.

    Args:
        alpha: strength of the regulariser.

    Reduces to: SCAFFOLD's local steps at `alpha=0`.

    Example:
        >>> import holdfast as hf
        >>> hf.algorithms.feddc(alpha=0.1).rule
        Chain(rules=(ControlVariate(), Dynamic(alpha=0.1)))

    Reference: Gao et al., "FedDC", CVPR 2022.
    """
    return Algorithm(Chain((ControlVariate(), Dynamic(alpha))), name="feddc")


@explain_arguments
def fedsplit(step_size: Any, average: Literal["all", "active"] = "active") -> Algorithm:
    r"""Peaceman-Rachford splitting, extended to partial participation.

    $$ \min_y f_i(y) + \tfrac{1}{2s}\|y - (2x - z_i)\|^2, \quad z_i \leftarrow z_i + 2(y_i - x) $$

    Travels: the model down, one model up.

    Args:
        step_size: s, the step of the proximal operator.
        average: the server's model is the mean of the `"active"` clients' rows, or of `"all"`.

    Reduces to: the same method for both averages under full participation.

    Example:
        >>> import holdfast as hf
        >>> hf.algorithms.fedsplit(step_size=0.5, average="all").rule
        SplitAll(step_size=0.5)

    Reference: Pathak and Wainwright, "FedSplit", NeurIPS 2020; FedDyn, appendix A.4.
    """
    rules = {"active": SplitActive(step_size), "all": SplitAll(step_size)}
    return Algorithm(_choose("fedsplit", "average", average, rules), name="fedsplit")


@explain_arguments
def fedadam(learning_rate: Any = 0.01, b1: Any = 0.9, b2: Any = 0.99, eps: Any = 1e-3) -> Algorithm:
    r"""FedAvg with Adam at the server.

    $$ x \leftarrow x + \eta_s\, \frac{\hat m}{\sqrt{\hat v} + \tau} $$

    Travels: the model down, delta up.

    Args:
        learning_rate: $\eta_s$, the server's step size.
        b1: decay of the first moment.
        b2: decay of the second moment.
        eps: the paper's $\tau$. Moments are optax's, with bias correction, which the paper leaves out.

    Reduces to: FedAvg of rescaled coordinates.

    Example:
        >>> import holdfast as hf
        >>> hf.algorithms.fedadam(learning_rate=0.03).name
        'fedadam'

    Reference: Reddi et al., "Adaptive federated optimization", ICLR 2021.
    """
    settings = {"learning_rate": learning_rate, "b1": b1, "b2": b2, "eps": eps}
    return Algorithm(ServerOptimizer(optax.adam, settings), weighting="examples", name="fedadam")


@explain_arguments
def fedyogi(learning_rate: Any = 0.01, b1: Any = 0.9, b2: Any = 0.99, eps: Any = 1e-3) -> Algorithm:
    r"""FedAvg with Yogi at the server.

    $$ v \leftarrow v - (1 - \beta_2)\, d^2\, \mathrm{sign}(v - d^2) $$

    Travels: the model down, delta up.

    Args:
        learning_rate: the server's step size.
        b1: decay of the first moment.
        b2: decay of the second moment.
        eps: the paper's $\tau$.

    Reduces to: FedAdam's first moment with a slower second one.

    Example:
        >>> import holdfast as hf
        >>> hf.algorithms.fedyogi(learning_rate=0.03).name
        'fedyogi'

    Reference: Reddi et al., "Adaptive federated optimization", ICLR 2021.
    """
    settings = {"learning_rate": learning_rate, "b1": b1, "b2": b2, "eps": eps}
    return Algorithm(ServerOptimizer(optax.yogi, settings), weighting="examples", name="fedyogi")


@explain_arguments
def fedavgm(learning_rate: Any = 1.0, momentum: Any = 0.9) -> Algorithm:
    r"""FedAvg with momentum at the server.

    $$ v \leftarrow \beta v + \overline{d}, \quad x \leftarrow x + \eta_s v $$

    Travels: the model down, delta up.

    Args:
        learning_rate: $\eta_s$, the server's step size.
        momentum: $\beta$.

    Reduces to: FedAvg at `momentum=0`, `learning_rate=1`.

    Example:
        >>> import holdfast as hf
        >>> hf.algorithms.fedavgm(momentum=0.9).name
        'fedavgm'

    Reference: Hsu et al., "Measuring the effects of non-identical data distribution", 2019.
    """
    settings = {"learning_rate": learning_rate, "momentum": momentum}
    return Algorithm(ServerOptimizer(optax.sgd, settings), weighting="examples", name="fedavgm")


@explain_arguments
def centralised() -> Algorithm:
    r"""Training on everybody's data in one place: the upper end of a comparison.

    $$ x \leftarrow x - \eta\, g(x) \text{ on } \textstyle\bigcup_i D_i $$

    A round is one `Local` (say, 5 epochs) over the pooled data. Travels: nothing.

    Reduces to: any method with one client.

    Example:
        >>> import holdfast as hf
        >>> hf.algorithms.centralised().name
        'centralised'
    """
    return Algorithm(Rule(), OnSite(), regroup=Clients.pooled, name="centralised")


@explain_arguments
def local_only() -> Algorithm:
    r"""Every client trains alone: the lower end of a comparison.

    $$ y_i \leftarrow y_i - \eta\, g_i(y_i) $$

    The server's model never moves; look at the clients' own (`hf.evaluate.personal`).
    Travels: nothing.

    Reduces to: `centralised` with one client.

    Example:
        >>> import holdfast as hf
        >>> hf.algorithms.local_only().rule
        LocalOnly()
    """
    return Algorithm(LocalOnly(), OnSite(), name="local_only")


def _server_step(server_learning_rate: Any) -> tuple[Rule, ...]:
    """The server's step size as the first part of a chain; None is absent and free."""
    if server_learning_rate is None:
        return ()
    return (ServerOptimizer(optax.sgd, {"learning_rate": server_learning_rate}),)


@explain_arguments
def fedavg_plus(
    gamma: Any, server_learning_rate: Any = None, weighting: Weighting = "examples"
) -> Algorithm:
    r"""FedAvg, after which the server goes on with its own data.

    $$ \bar x = x + \eta_g\,\overline{d}, \quad y \leftarrow y - \eta_0 \gamma\, g_0(y)
       \text{ from } \bar x $$

    Travels: the model down, delta up. Needs `simulate(server=hf.Server(data, local))`.

    Args:
        gamma: weight of the server's loss; a number or a schedule over rounds.
        server_learning_rate: $\eta_g$, 1 unless given; the paper takes the root of the cohort's size.
        weighting: mean by number of `"examples"`, or `"uniform"`.

    Reduces to: `fedavg(server_learning_rate)` at `gamma=0`, bit for bit.

    Example:
        >>> import holdfast as hf
        >>> hf.algorithms.fedavg_plus(gamma=0.5).rule
        ServerLearning(gamma=0.5, pull=None)

    Reference: Mai, La and Zhang, "Federated learning with server learning", 2022.
    """
    rules = (*_server_step(server_learning_rate), ServerLearning(gamma))
    rule = rules[0] if len(rules) == 1 else Chain(rules)
    return Algorithm(rule, weighting=weighting, name="fedavg_plus")


@explain_arguments
def scaffold_plus(gamma: Any, server_learning_rate: Any = None) -> Algorithm:
    r"""SCAFFOLD in which the server is a client too, with a control variate of its own.

    $$ x \leftarrow x + \gamma(x_0 - x), \quad c \leftarrow c + \gamma\, (c_0^+ - c_0) $$

    Travels: the model and c down, delta up. Needs `simulate(server=hf.Server(data, local))`.

    Args:
        gamma: how much the server's turn counts; a number or a schedule over rounds.
        server_learning_rate: $\eta_g$, 1 unless given.

    Reduces to: `scaffold(server_learning_rate=...)` at `gamma=0`.

    Example:
        >>> import holdfast as hf
        >>> hf.algorithms.scaffold_plus(gamma=0.5).rule
        ServerTurn(inner=ControlVariate(), gamma=0.5)

    Reference: Mai, La and Zhang, "Federated learning with server learning", 2022, with the sign of
    algorithm 2, line 9 corrected.
    """
    rules = (*_server_step(server_learning_rate), ServerTurn(ControlVariate(), gamma))
    return Algorithm(rules[0] if len(rules) == 1 else Chain(rules), name="scaffold_plus")


@explain_arguments
def feddyn_plus(alpha: Any, gamma: Any) -> Algorithm:
    r"""FedDyn, after which the server goes on with its own data, held by FedDyn's regulariser.

    $$ \min_y \gamma f_0(y) - \alpha\langle h, y\rangle + \tfrac{\alpha}{2}\|y - \bar x\|^2
       \text{ from } \bar x + h $$

    Travels: the model down, delta up. Needs `simulate(server=hf.Server(data, local))`.

    Args:
        alpha: strength of the regulariser.
        gamma: weight of the server's loss; the paper lets it decay by 0.99 a round.

    Reduces to: `feddyn(alpha)` at `gamma=0`, bit for bit.

    Example:
        >>> import holdfast as hf
        >>> gamma = hf.schedules.exponential(0.1, 0.99)
        >>> hf.algorithms.feddyn_plus(alpha=0.1, gamma=gamma).name
        'feddyn_plus'

    Reference: Mai, La and Zhang, "Federated learning with server learning", 2022, with the pull of
    algorithm 3, line 11 towards the mean of the replies.
    """
    return Algorithm(Chain((Dynamic(alpha), ServerLearning(gamma, alpha))), name="feddyn_plus")


@explain_arguments
def feddc_plus(alpha: Any, gamma: Any) -> Algorithm:
    r"""FedDC, after which the server goes on with its own data.

    $$ \min_y \gamma f_0(y) - \alpha\langle h, y\rangle + \tfrac{\alpha}{2}\|y - \bar x\|^2
       \text{ from } \bar x + h $$

    Travels: the model and c down, delta up. Needs `simulate(server=hf.Server(data, local))`.

    Args:
        alpha: strength of the regulariser.
        gamma: weight of the server's loss; the paper lets it decay by 0.99 a round.

    Reduces to: `feddc(alpha)` at `gamma=0`, bit for bit.

    Example:
        >>> import holdfast as hf
        >>> hf.algorithms.feddc_plus(alpha=0.1, gamma=0.05).name
        'feddc_plus'

    Reference: Mai, La and Zhang, "Federated learning with server learning", 2022.
    """
    rules = (ControlVariate(), Dynamic(alpha), ServerLearning(gamma, alpha))
    return Algorithm(Chain(rules), name="feddc_plus")


@explain_arguments
def server_as_client() -> Algorithm:
    r"""Non-incremental server learning: FedAvg with the server as one more client.

    $$ x \leftarrow x + \frac{\sum_i n_i d_i + n_0 d_0}{\sum_i n_i + n_0} $$

    Travels: the model down, delta up. Needs `simulate(server=hf.Server(data, local))`.

    Reduces to: FedAvg over a population that includes the server.

    Example:
        >>> import holdfast as hf
        >>> hf.algorithms.server_as_client().weighting
        'examples'

    Reference: Mai, La and Zhang, "Federated learning with server learning", 2022 (its FSL-p).
    """
    return Algorithm(ServerAsClient(), weighting="examples", name="server_as_client")


def _mixed(
    rule: Rule, server_optimizer: Any, merge_optimizer: Any, weighting: Weighting, name: str
) -> Algorithm:
    """Around a mixed rule: an optimiser of the federated move before it, of the merged one after it."""
    before = () if server_optimizer is None else (ServerOptimizer(server_optimizer),)
    after = () if merge_optimizer is None else (ServerOptimizer(merge_optimizer),)
    rules = (*before, rule, *after)
    return Algorithm(rule if len(rules) == 1 else Chain(rules), weighting=weighting, name=name)


@explain_arguments
def parallel_training(
    federated: Any = 1.0,
    central: Any = 1.0,
    merge: tuple[Any, Any] = (1.0, 1.0),
    server_optimizer: Any = None,
    merge_optimizer: Any = None,
    weighting: Weighting = "processed",
) -> Algorithm:
    r"""Clients and server train side by side on their own losses; the moves are merged.

    $$ x \leftarrow x + m_f\,\overline{d} + m_c\, D_c $$

    Travels: the model down, delta up. Needs `simulate(server=hf.Server(data_or_loss, local))`; the
    client and central optimisers are those of the two `Local`s.

    Args:
        federated: $w_f$, weight of the clients' loss.
        central: $w_c$, weight of the server's loss.
        merge: $(m_f, m_c)$, how the moves are merged; added unless given.
        server_optimizer: an optax optimiser of the federated move, before merging.
        merge_optimizer: an optax optimiser of the merged move.
        weighting: client weights, by examples `"processed"` as in the paper.

    Reduces to: FedAvg at `central=0`; `one_way_transfer` with one full-batch step.

    Example:
        >>> import holdfast as hf
        >>> hf.algorithms.parallel_training(central=0.5).rule.central
        0.5

    Reference: Augenstein et al., "Mixed federated learning", 2022.
    """
    rule = ParallelTraining(federated, central, merge)
    return _mixed(rule, server_optimizer, merge_optimizer, weighting, "parallel_training")


@explain_arguments
def one_way_transfer(
    federated: Any = 1.0,
    central: Any = 1.0,
    server_optimizer: Any = None,
    weighting: Weighting = "processed",
) -> Algorithm:
    r"""The server's gradient at x is added to every client step.

    $$ y \leftarrow y - \eta\,\big(w_f\, g_i(y) + w_c\, g_c(x)\big) $$

    Travels: the model and the server's gradient down, delta up: 1.5 times FedAvg. Needs
    `simulate(server=hf.Server(data_or_loss, local))`.

    Args:
        federated: $w_f$, weight of the clients' loss.
        central: $w_c$, weight of the server's loss.
        server_optimizer: an optax optimiser of the federated move.
        weighting: client weights, by examples `"processed"` as in the paper.

    Reduces to: FedAvg at `central=0`.

    Example:
        >>> import holdfast as hf, optax
        >>> hf.algorithms.one_way_transfer(server_optimizer=optax.adam(0.01)).name
        'one_way_transfer'

    Reference: Augenstein et al., "Mixed federated learning", 2022, algorithm 2.
    """
    rule = OneWayTransfer(federated, central)
    return _mixed(rule, server_optimizer, None, weighting, "one_way_transfer")


@explain_arguments
def two_way_transfer(
    federated: Any = 1.0,
    central: Any = 1.0,
    merge: tuple[Any, Any] = (0.5, 0.5),
    server_optimizer: Any = None,
    merge_optimizer: Any = None,
    weighting: Weighting = "processed",
) -> Algorithm:
    r"""Clients and server train side by side, each adding the other's gradient of the last round.

    $$ y \leftarrow y - \eta\,(w_f\, g_i(y) + g_c), \quad
       y_c \leftarrow y_c - \eta_c\,(w_c\, g_c(y_c) + g_f) $$

    Travels: the model and the server's gradient down, delta up: 1.5 times FedAvg. Needs
    `simulate(server=hf.Server(data_or_loss, local))`.

    Args:
        federated: $w_f$, weight of the clients' loss.
        central: $w_c$, weight of the server's loss.
        merge: $(m_f, m_c)$, how the moves are merged; averaged unless given.
        server_optimizer: an optax optimiser of the federated move, before merging.
        merge_optimizer: an optax optimiser of the merged move.
        weighting: client weights, by examples `"processed"` as in the paper.

    Reduces to: half a parallel step in its first round.

    Example:
        >>> import holdfast as hf
        >>> hf.algorithms.two_way_transfer().rule.merge
        (0.5, 0.5)

    Reference: Augenstein et al., "Mixed federated learning", 2022, algorithm 1.
    """
    rule = TwoWayTransfer(federated, central, merge)
    return _mixed(rule, server_optimizer, merge_optimizer, weighting, "two_way_transfer")
