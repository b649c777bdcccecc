"""A trained model as a program that needs no holdfast: StableHLO by jax.export, ONNX by jax2onnx."""

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

from holdfast.data.clients import Examples
from holdfast.data.preprocessing import Number, Preprocessing
from holdfast.errors import HoldfastError
from holdfast.record.files import write_whole
from holdfast.saved.model import SavedModel

Format: TypeAlias = Literal["stablehlo", "onnx"]
# Beyond it 32 bits would lose digits that matter: (v - centre) / scale is computed in 64 bits otherwise.
_MOST_OFFSET = 100.0
_PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


def export(saved: SavedModel, path: str | Path, format: Format = "stablehlo") -> tuple[Path, Path]:
    """Write the model as a program of any number of rows, and a JSON file that says what goes in and out.

    What comes out is `predict_proba`, or the numbers of a regression. What goes in are the columns of the
    table, NaN where a value is missing, if 32-bit numbers can say all of them; else the inputs after
    preprocessing, which the JSON file has.

    Args:
        saved: one model: of personal ones, a client's.
        path: the file to write; the other is called `.json` besides.
        format: `"stablehlo"`, which `jax.export.deserialize` reads, or `"onnx"`.
    """
    if format not in get_args(Format):
        raise HoldfastError(
            f"export: format={format!r}; give 'stablehlo' or 'onnx'.", about=("format",)
        )
    if saved.model.engine is not None:
        raise HoldfastError(
            f"export: another framework computes {saved.model.name}; export the module there, with "
            f"saved.params as its parameters.",
            about=("model",),
        )
    path = Path(path)
    # jax2onnx knows layers of flax, and not what becomes of them under `vmap`.
    program, about = _program(saved, by_row=format != "onnx")
    if format == "onnx":
        _check_onnx(saved)
        written = _onnx(program, about)
    else:
        written = _stablehlo(saved, program, about)
    write_whole(path, written)
    sidecar = path.with_name(path.name + ".json")
    write_whole(sidecar, json.dumps({"format": format, **about}, indent=2) + "\n")
    return path, sidecar


def _program(
    saved: SavedModel, by_row: bool
) -> tuple[Callable[[jax.Array], jax.Array], dict[str, Any]]:
    """The function of rows, and what is said of it.

    If the model sees rows one by one, what it does by the number of rows needs no number.
    """
    description, made = saved.description, saved.preprocessing
    params = jax.tree.map(jnp.asarray, saved.params)
    inside = made is not None and _of_numbers(made)
    raw = description.x.dtype
    shape = (len(made.columns),) if made is not None and inside else description.x.shape

    def program(x: jax.Array) -> jax.Array:
        if made is not None and inside:
            x = _transformed(made, x)
        if by_row:
            found = jax.vmap(lambda row: saved.says(params, Examples(row[None], None))[0])(x)
        else:
            found = saved.says(params, Examples(x, None))
        if description.task == "binary":
            found = jnp.stack([1 - found, found], axis=-1)
        if description.task == "numbers" and made is not None and made.target is not None:
            found = found * made.target.scale + made.target.centre
        return found

    columns = None if made is None else list(made.columns if inside else made.feature_names)
    names = saved.feature_names
    what = "columns of the table, NaN where missing" if inside else "the model's inputs"
    if made is not None and not inside:
        what += ", after the preprocessing below"
    about = {
        "input": {
            "what": what,
            "shape": ["rows", *shape],
            "dtype": raw,
            "columns": columns if made is not None else None if names is None else list(names),
        },
        "output": {
            "what": "numbers" if description.task == "numbers" else "probabilities of labels",
            "labels": None if saved.label_names is None else list(saved.label_names),
        },
        "preprocessing": None if made is None or inside else made.to_dict(),
        "model": description.title,
        "versions": description.versions,
    }
    return program, about


def _of_numbers(made: Preprocessing) -> bool:
    """Whether 32-bit numbers hold all that the columns can be, and the way from them to inputs."""
    missing = made.missing_values
    values = [v for one in made.inputs for v in missing.column(one.name) if v]
    for one in made.inputs:
        if isinstance(one, Number):
            if abs(one.centre) > _MOST_OFFSET * abs(one.scale):
                return False
        else:
            values += one.categories
    return all(_is_number(value) or value == "?" for value in values)


def _is_number(value: str) -> bool:
    try:
        return abs(float(value)) < 2**24  # beyond it not every whole number is one of 32 bits
    except ValueError:
        return False


def _transformed(made: Preprocessing, x: jax.Array) -> jax.Array:
    """`Preprocessing.transform` of columns that are numbers."""
    found: list[jax.Array] = []
    for i, one in enumerate(made.inputs):
        v = x[:, i]
        absent = jnp.isnan(v)
        for value in sorted(made.missing_values.column(one.name)):
            if _is_number(value):
                absent = absent | (v == jnp.asarray(float(value), v.dtype))
        # Where nothing is filled in, what is missing stays NaN, and so does what is predicted.
        fill = jnp.asarray(np.nan if one.fill is None else float(one.fill), v.dtype)
        v = jnp.where(absent, fill, v)
        if isinstance(one, Number):
            centre, scale = jnp.asarray(one.centre, v.dtype), jnp.asarray(one.scale, v.dtype)
            found.append((v - centre) / scale)
        else:
            for category in one.categories:
                same = (v == jnp.asarray(float(category), v.dtype)).astype(v.dtype)
                found.append(jnp.where(jnp.isnan(v), v, same))
        if one.indicator:
            found.append(absent.astype(v.dtype))
    return jnp.stack(found, axis=1)


def _stablehlo(saved: SavedModel, program: Any, about: dict[str, Any]) -> bytes:
    shape = about["input"]["shape"]
    (rows,) = jax.export.symbolic_shape("rows")
    like = jax.ShapeDtypeStruct((rows, *shape[1:]), about["input"]["dtype"])
    with jax.enable_x64(saved.wide):
        made = jax.export.export(jax.jit(program), platforms=_PLATFORMS)(like)
    try:
        return bytes(made.serialize())
    except ImportError:
        raise HoldfastError(
            "export: jax.export writes files with flatbuffers, which is not installed; `pip install "
            "flatbuffers`.",
            about=("format",),
        ) from None


def _check_onnx(saved: SavedModel) -> None:
    if saved.wide:
        raise HoldfastError(
            "export: the model computes in 64 bits, and ONNX is written in 32; use format='stablehlo'.",
            about=("format",),
        )


def _onnx(program: Any, about: dict[str, Any]) -> bytes:
    try:
        converter = importlib.import_module("jax2onnx")
    except ImportError:
        raise HoldfastError(
            'export: ONNX needs jax2onnx, which is not installed; `pip install "holdfast[onnx]"`, or use '
            "format='stablehlo'.",
            about=("format",),
        ) from None
    shape = about["input"]["shape"]
    like = jax.ShapeDtypeStruct(("rows", *shape[1:]), about["input"]["dtype"])
    try:
        made = converter.to_onnx(
            program,
            [like],
            model_name="holdfast",
            input_names=["rows"],
            output_names=["predictions"],
        )
    # A converter refuses what it does not know by exceptions of many kinds.
    except Exception as error:
        said = " ".join(str(error).split())[:200]
        raise HoldfastError(
            f"export: jax2onnx cannot write this model ({type(error).__name__}: {said}); use "
            f"format='stablehlo'.",
            about=("format",),
        ) from None
    return bytes(made.SerializeToString())
