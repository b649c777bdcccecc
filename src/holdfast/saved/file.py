"""One safetensors file: parameters by name, and as its metadata one JSON text that says all else."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import safetensors
import safetensors.numpy

from holdfast.errors import HoldfastError, file_errors_said
from holdfast.record.files import write_whole
from holdfast.saved.description import Description
from holdfast.trees import Tree, paths

_KEY = (
    "holdfast"  # one key: several would be written in any order, and two files alike would differ
)
Arrays = Mapping[str, np.ndarray]


def by_name(params: Tree, prefix: str = "") -> dict[str, np.ndarray]:
    """The leaves of a model by their names; a model that is one array is called `params`."""
    # Not `ascontiguousarray`, which gives an axis to an array that has none.
    leaves = [np.asarray(a, order="C") for a in jax.tree.leaves(jax.device_get(params))]
    return {prefix + (n or "params"): a for n, a in zip(paths(params), leaves, strict=True)}


def content(arrays: Arrays, description: Description) -> bytes:
    """The bytes of a file; equal for equal models."""
    about = description.to_dict()
    text = json.dumps({"description": about, "sha256": _digest(arrays, about)}, sort_keys=True)
    return safetensors.numpy.save(dict(arrays), metadata={_KEY: text})


def write(path: Path, arrays: Arrays, description: Description) -> Path:
    """Write a saved model, whole or not at all."""
    write_whole(path, content(arrays, description))
    return path


def read(path: Path) -> tuple[dict[str, np.ndarray], Description | None]:
    """Parameters by name, and what the file says of them; None of one that says nothing."""
    if not path.is_file():
        what = "is a folder without a model" if path.is_dir() else "does not exist"
        raise HoldfastError(
            f"{path} {what}; give a folder that `holdfast run` made, or a file that run.save wrote."
        )
    with file_errors_said(path=path):
        try:
            with safetensors.safe_open(path, framework="numpy") as opened:
                metadata = opened.metadata() or {}
                arrays = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        except OSError:
            raise
        # Whatever the reader makes of bytes that are no such file.
        except Exception as error:
            said = " ".join(str(error).split())
            raise HoldfastError(
                f"{path} is no saved model, or damaged ({said}); copy or save it again."
            ) from None
    if _KEY not in metadata:
        return arrays, None
    try:
        about = json.loads(metadata[_KEY])
        described, digest = about["description"], about["sha256"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise HoldfastError(
            f"{path} is damaged (its description: {error}); copy or save it again."
        ) from None
    description = Description.from_dict(described, path)
    if _digest(arrays, described) != digest:
        raise HoldfastError(
            f"{path} is damaged (its checksum does not fit); copy or save it again."
        )
    return arrays, description


def _digest(arrays: Arrays, about: Any) -> str:
    """Of parameters and description together, the same before writing and after reading."""
    check = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(arrays):
        a = arrays[name]
        check.update(f"{name} {a.dtype} {a.shape} ".encode())
        check.update(np.ascontiguousarray(a).tobytes())
    return check.hexdigest()
