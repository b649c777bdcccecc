"""Arrays that nobody can write to, in memory that a CPU's devices use where it is: one copy for all."""

import mmap
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from jax import tree

from holdfast.errors import explain_arguments
from holdfast.trees import Tree

# Bytes; XLA copies an array that begins anywhere else. Large ones of NumPy's do.
_ALIGNMENT = 64
# Memory that `closed` made read-only when nobody else had it, by its id.
_closed: WeakValueDictionary[int, np.ndarray] = WeakValueDictionary()


def aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Room for an array, as `numpy.empty`, that begins where XLA wants it to."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    block = np.empty(size + _ALIGNMENT, np.uint8)
    first = -block.ctypes.data % _ALIGNMENT
    return block[first : first + size].view(dtype).reshape(shape)


def closed(array: np.ndarray) -> np.ndarray:
    """The same array, that cannot be written to any more; of one that `aligned` made."""
    block = array.base
    assert isinstance(block, np.ndarray)
    array.flags.writeable = block.flags.writeable = False
    _closed[id(block)] = block
    return array


def copied(array: np.ndarray, dtype: Any) -> np.ndarray:
    """A copy that is aligned and closed, in this type."""
    out = aligned(array.shape, dtype)
    np.copyto(out, array, casting="unsafe")
    return closed(out)


def is_closed(array: Any) -> bool:
    """Whether nobody can write to an array: it is read-only, and so is whatever its memory belongs to.

    Of an array with memory of its own only `closed` knows that: views that were made before it became
    read-only can still be written to.
    """
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return False
        if array.base is None:
            return _closed.get(id(array)) is array
        array = array.base
    return isinstance(array, bytes | mmap.mmap) and memoryview(array).readonly


def usable(array: np.ndarray) -> bool:
    """Whether a device may use the array where it is."""
    there = array.flags.c_contiguous and array.ctypes.data % _ALIGNMENT == 0
    return there and is_closed(array)


def _in_file(array: Any) -> bool:
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, mmap.mmap)


@explain_arguments
def read_only(examples: Tree) -> Tree:
    """Examples as a run can use them without a copy of its own, on all devices of a CPU.

    A run must not change when arrays do that were given to it. So it copies them, once for all devices
    of a CPU, unless nobody can write to them. Such are made here: what is given is copied, and can be
    dropped. (Not so an array whose `flags.writeable` was set to False: earlier views of it can still be
    written to.) Arrays in files (`hf.data.mapped`) stay there. Experiment files do this with
    the data they name.

    Args:
        examples: arrays with a row per example, such as `hf.Examples(x, y)`.

    Example:
        >>> import numpy as np
        >>> import holdfast as hf
        >>> data = hf.data.read_only(hf.Examples(np.zeros((4, 2)), np.arange(4)))
        >>> data.x[0] = 1.0
        Traceback (most recent call last):
        ...
        ValueError: assignment destination is read-only
    """

    def one(given: Any) -> Any:
        # JAX's own arrays never change, and what is no array is refused where it is used.
        numbers = isinstance(given, np.ndarray) and not given.dtype.hasobject
        keep = not numbers or _in_file(given) or usable(given)
        return given if keep else copied(given, given.dtype)

    return tree.map(one, examples)
