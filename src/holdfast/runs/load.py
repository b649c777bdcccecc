"""Trained models to predict with: from a run folder, or from a file that was saved."""

import dataclasses
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError, did_you_mean, explain_arguments, file_errors_said
from holdfast.models.model import Model
from holdfast.runs.folder import RunFolder, SeedFolder
from holdfast.saved import file
from holdfast.saved.model import SavedModel
from holdfast.saved.rebuild import rebuilt
from holdfast.saved.task import task_of


@explain_arguments
@file_errors_said()
def load(
    path: str | Path,
    method: str | None = None,
    seed: int | None = None,
    split: int | None = None,
    client: str | int | None = None,
    model: Model | None = None,
    trust: bool = False,
) -> SavedModel:
    """A trained model that predicts, from a run folder or from a file of `run.save`.

    Args:
        path: a folder that `holdfast run` made, or a .safetensors file.
        method: of a run folder, the label of the method; may be left out if it has one.
        seed: of a run folder; the first unless given.
        split: of a run folder with several splits of its data; the first unless given.
        client: whose model, by name or number, where clients have models of their own.
        model: the model, if the file cannot say how it is made: an `hf.Model` of your own.
        trust: run code of your own that the file names even if it lies outside the current folder or
            belongs to another user.

    Example:
        >>> import holdfast as hf
        >>> import tempfile
        >>> data = hf.data.digits()
        >>> clients = hf.data.partition.iid(data.train, clients=2)
        >>> model = hf.models.softmax_regression(classes=10)
        >>> local = hf.Local(learning_rate=0.1, steps=20, batch_size=10)
        >>> run = hf.simulate(hf.algorithms.fedavg(), model, clients, local, rounds=3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     saved = hf.load(run.save(f"{folder}/digits.safetensors", data=data))
        >>> bool((saved.predict_proba(data.test.x) == model.predict(run.params, data.test)).all())
        True
    """
    path = Path(path)
    if path.is_dir():
        path = _file_of(path, method, seed, split)
    elif path.exists() and any(given is not None for given in (method, seed, split)):
        raise HoldfastError(
            f"load: {path} is a file with one method's model; leave out `method`, `seed` and `split`.",
            about=("method",),
        )
    arrays, about = file.read(path)
    if about is None:
        raise HoldfastError(
            f"{path} has parameters and no word on their model: it was written before models could be "
            f"loaded. Run the experiment again."
        )
    made = rebuilt(about, path, trust) if model is None else _given(model)
    saved = SavedModel(about, made, arrays, path)
    if model is not None:  # it may say more of itself than the one it was trained as
        task = task_of(model, saved.shapes[0], about.x, about.y)
        saved = dataclasses.replace(saved, description=dataclasses.replace(about, task=task))
    return saved if client is None else saved.for_client(client)


def _given(model: Any) -> Model:
    if not isinstance(model, Model):
        raise HoldfastError(
            f"load: model is a {type(model).__name__}; give the hf.Model it was trained with.",
            about=("model",),
        )
    return model


def _file_of(path: Path, method: str | None, seed: int | None, split: int | None) -> Path:
    """The file with the models of a method: clients' own where they have some, else the server's."""
    found = chosen(RunFolder.open(path), method, seed, split)
    return found.personal_file if found.personal_file.exists() else found.params_file


def chosen(
    folder: RunFolder, method: str | None, seed: int | None, split: int | None
) -> SeedFolder:
    """The files of one method and seed that have a model."""
    listed = {m["label"]: m["folder"] for m in folder.description()["methods"]}
    if method is None and len(listed) > 1:
        raise HoldfastError(
            f"{folder.path} has {len(listed)} methods; say which, by method= (--method): "
            f"{'; '.join(listed)}.",
            about=("method",),
        )
    label = next(iter(listed)) if method is None else method
    if label not in listed:
        raise HoldfastError(
            f"{folder.path} has no method `{label}`; {did_you_mean(label, listed)}",
            about=("method",),
        )
    ended = [s for s in folder.seeds(listed[label]) if s.ended]
    if not ended:
        raise HoldfastError(
            f"{folder.path}: {label} has not reached its last round; go on with "
            f"`holdfast resume {folder.path}`."
        )
    for what, wanted, has in (
        ("split", split, [s.split for s in ended]),
        ("seed", seed, [s.seed for s in ended]),
    ):
        if wanted is not None and wanted not in has:
            numbered = ", ".join(dict.fromkeys(str(n) for n in has if n is not None))
            known = f"it has {numbered}" if numbered else f"the run has one alone, leave {what} out"
            raise HoldfastError(
                f"{folder.path}: {label} has no {what} {wanted}; {known}.", about=(what,)
            )
    of_split = [s for s in ended if s.split == (ended[0].split if split is None else split)]
    found = next((s for s in of_split if seed is None or s.seed == seed), None)
    if found is None:
        raise HoldfastError(
            f"{folder.path}: {label} has not reached the last round with seed {seed} in this split.",
            about=("seed",),
        )
    found.check_models()
    return found
