"""Names as people write them: of methods, of metrics and of settings, in prose, tables and figures."""

import re

_METHODS = {
    "centralised": "Centralised",
    "dcgd": "DCGD",
    "diana": "DIANA",
    "fedadam": "FedAdam",
    "fedavg": "FedAvg",
    "fedavgm": "FedAvgM",
    "feddc": "FedDC",
    "feddyn": "FedDyn",
    "fedprox": "FedProx",
    "fedpvr": "FedPVR",
    "fedsplit": "FedSplit",
    "fedyogi": "FedYogi",
    "flix": "FLIX",
    "flix_one_shot": "FLIX in one shot",
    "fomaml": "FOMAML",
    "local_only": "Local only",
    "one_way_transfer": "One-way transfer",
    "parallel_training": "Parallel training",
    "population_transfer": "Population transfer",
    "reptile": "Reptile",
    "scaffold": "SCAFFOLD",
    "server_as_client": "Server as client",
    "two_way_transfer": "Two-way transfer",
}
_WORDS = {
    "auc": "AUC",
    "auroc": "AUROC",
    "bleu": "BLEU",
    "brier": "Brier score",
    "ece": "calibration error",
    "f1": "F1",
    "iou": "IoU",
    "mae": "mean absolute error",
    "mape": "MAPE",
    "mrr": "MRR",
    "mse": "mean squared error",
    "ndcg": "NDCG",
    "nll": "negative log-likelihood",
    "r2": "R²",
    "rmse": "RMSE",
}
# Before the name of a metric: whose it is.
_BEFORE = {
    "train": "training {}",
    "average": "{} of the average of clients' models",
    "active": "{} of the average of the round's models",
    "personal": "clients' own {}",
}


def method_name(label: str) -> str:
    """A method's label in words; what is no name of holdfast's stays as somebody wrote it.

    Example:
        >>> method_name("feddyn alpha=0.1"), method_name("scaffold_plus (second)")
        ('FedDyn, alpha 0.1', 'SCAFFOLD+ (second)')
        >>> method_name("fedavg learning_rate=0.1, epochs=2"), method_name("our method")
        ('FedAvg, learning rate 0.1, epochs 2', 'our method')
    """
    whole = re.fullmatch(r"(\w+)((?:,? [\w.]+=.*?)?)( \([^()]*\))?", label)
    known = None if whole is None else _known(whole[1])
    if whole is None or known is None:
        return label
    settings = re.split(r",? (?=[\w.]+=)", whole[2])[1:]
    return ", ".join([known, *map(_setting, settings)]) + (whole[3] or "")


def _known(name: str) -> str | None:
    plain = name.removesuffix("_plus")
    found = _METHODS.get(plain)
    return None if found is None else found + "+" * (plain != name)


def _setting(text: str) -> str:
    key, _, value = text.partition("=")
    return f"{in_words(key)} {value}"


def in_words(key: str) -> str:
    """A key of a file without underscores and dots.

    Example:
        >>> in_words("local.learning_rate")
        'local learning rate'
    """
    return re.sub(r"[_.]+", " ", key)


def metric_name(column: str) -> str:
    """A column of a history in words.

    Example:
        >>> metric_name("personal_accuracy"), metric_name("validation_f1_macro")
        ("clients' own accuracy", 'validation F1 macro')
        >>> metric_name("train_loss"), metric_name("accuracy_worst_tenth")
        ('training loss', 'accuracy of the worst tenth')
    """
    worst = column.removesuffix("_worst_tenth")
    if worst != column:
        return f"{metric_name(worst)} of the worst tenth"
    first, _, rest = column.partition("_")
    if first in _BEFORE and rest:
        return _BEFORE[first].format(metric_name(rest))
    return " ".join(_WORDS.get(word, word) for word in column.split("_"))
