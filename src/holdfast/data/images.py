"""Data sets of small images: MNIST, Fashion-MNIST, EMNIST, CIFAR-10 and CIFAR-100."""

import io
import math
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from holdfast.data.cache import Archive, File, Folder, contents, home, obtain, optional
from holdfast.data.clients import Examples
from holdfast.data.dataset import Dataset
from holdfast.data.unpack import check_matlab, unzipped
from holdfast.errors import HoldfastError, did_you_mean, explain_arguments

# Mean and standard deviation of the training pixels, by channel, as everybody uses them.
MNIST_SCALE = ((0.1307,), (0.3081,))
FASHION_SCALE = ((0.2860,), (0.3530,))
EMNIST_SCALE = ((0.1751,), (0.3332,))  # of the balanced split
CIFAR10_SCALE = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
CIFAR100_SCALE = ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))
Scale = tuple[tuple[float, ...], tuple[float, ...]]

IDX_PARTS = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)


def _idx_files(
    mirrors: Sequence[str], files: Sequence[tuple[int, str]], inside: Sequence[str]
) -> list[File]:
    return [
        File(
            name,
            tuple(f"{mirror}/{name}" for mirror in mirrors),
            f"sha256:{sha256}",
            f"md5:{content}",
            size,
        )
        for name, (size, sha256), content in zip(IDX_PARTS, files, inside, strict=True)
    ]


# Files: TensorFlow Datasets (url_checksums/mnist.txt). Contents: many projects, and seen here.
MNIST = _idx_files(
    (
        "https://ossci-datasets.s3.amazonaws.com/mnist",
        "https://storage.googleapis.com/cvdf-datasets/mnist",
    ),
    (
        (9912422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        (28881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
        (1648877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        (4542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    ),
    (
        "6bbc9ace898e44ae57da46a324031adb",
        "a25bea736e30d166cdddb491f175f624",
        "2646ac647ad5339dbf082846283269ea",
        "27ae3e4e09519cfbb04c329615203637",
    ),
)
# Files: TensorFlow Datasets, url_checksums/fashion_mnist.txt. Contents: as Debian's package has them.
FASHION_MNIST = _idx_files(
    ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",),
    (
        (26421880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
        (29515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
        (4422102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
        (5148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
    ),
    (
        "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "9018921c3c673c538a1fc5bad174d6f9",
        "8181f5470baa50b63fa0f6fddb340f0a",
        "15d484375f8d13e6eb1aabb0c3f46965",
    ),
)
# Three projects give this checksum independently; NIST itself gives none.
EMNIST = File(
    "matlab.zip",
    ("https://biometrics.nist.gov/cs_links/EMNIST/matlab.zip",),
    "md5:1bbb49fdf3462bb70c240eac93fff0e4",
)
EMNIST_CLASSES = {
    "balanced": 47,
    "byclass": 62,
    "bymerge": 47,
    "digits": 10,
    "letters": 26,
    "mnist": 10,
}
# Archives: TensorFlow Datasets, url_checksums/cifar10.txt and cifar100.txt. Members: other projects.
CIFAR10 = File(
    "cifar-10-binary.tar.gz",
    ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
    "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    size=170052171,
)
CIFAR10_BATCHES = {
    "cifar-10-batches-bin/data_batch_1.bin": "md5:5dd7e06a14cb22eb9f671a540d1b7c25",
    "cifar-10-batches-bin/data_batch_2.bin": "md5:5ea93a67294ea407fff1d09f752e9692",
    "cifar-10-batches-bin/data_batch_3.bin": "md5:942cd6a4bcdd0dd3c604fbe906cb4421",
    "cifar-10-batches-bin/data_batch_4.bin": "md5:ae636b3ba5c66a11e91e8cb52e771fcb",
    "cifar-10-batches-bin/data_batch_5.bin": "md5:53f37980c15c3d472c316c40844f3f0d",
}
CIFAR10_TEST = {"cifar-10-batches-bin/test_batch.bin": "md5:803d5f7f4d78ea53de84dbe85f74fb6d"}
CIFAR100 = File(
    "cifar-100-binary.tar.gz",
    ("https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",),
    "sha256:58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    size=168513733,
)
CIFAR100_MEMBERS = {
    "cifar-100-binary/train.bin": "md5:6172c7755cfe09b2fe270c85cebc1b15",
    "cifar-100-binary/test.bin": "md5:4499cfba6c016c1be1438163640a0898",
}


@explain_arguments
def mnist(normalise: bool = False, folder: Folder = None, verify: bool = True) -> Dataset:
    """MNIST: 60,000 and 10,000 handwritten digits of 28 x 28 pixels, in [0, 1].

    Checksums are the published ones; files that somebody compressed anew pass if what is inside
    is right.

    Args:
        normalise: subtract the usual mean (0.1307) and divide by the usual deviation (0.3081).
        folder: instead of the cache folder; the files lie in it or in its subfolder `mnist`.
        verify: compare checksums.
    """
    return _idx_set("mnist", MNIST, MNIST_SCALE, normalise, folder, verify)


@explain_arguments
def fashion_mnist(normalise: bool = False, folder: Folder = None, verify: bool = True) -> Dataset:
    """Fashion-MNIST: 60,000 and 10,000 pictures of clothes, 28 x 28 pixels, in [0, 1].

    Checksums are the published ones; files that somebody compressed anew, such as Debian's, pass if
    what is inside is right.

    Args:
        normalise: subtract the usual mean (0.2860) and divide by the usual deviation (0.3530).
        folder: instead of the cache folder; the files lie in it or in its subfolder `fashion_mnist`.
        verify: compare checksums.
    """
    return _idx_set("fashion_mnist", FASHION_MNIST, FASHION_SCALE, normalise, folder, verify)


def _idx_set(
    of: str, files: list[File], scale: Scale, normalise: bool, folder: Folder, verify: bool
) -> Dataset:
    paths = obtain(of, files, folder, verify)
    read = [read_idx(path.read_bytes(), str(path)) for path in paths]
    chosen = scale if normalise else None
    train, test = (_examples(of, read[k][..., None], read[k + 1], chosen) for k in (0, 2))
    return Dataset(train, test, classes=10)


def read_idx(raw: bytes, what: str = "idx") -> np.ndarray:
    """An array in the format of MNIST, gzipped or not; `what` names it in errors.

    Example:
        >>> import numpy as np
        >>> read_idx(bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3]) + bytes(range(6)))
        array([[0, 1, 2],
               [3, 4, 5]], dtype=uint8)
    """
    if raw[:2] == b"\x1f\x8b":
        try:
            raw = unzipped(raw, what)
        except (OSError, EOFError, zlib.error) as error:
            raise HoldfastError(f"{what} cannot be read: {error}; give the whole file.") from None
    # The header: two zeros, the type (8 is bytes), the number of axes, then their lengths.
    if len(raw) < 4 or raw[:3] != b"\0\0\x08":
        raise HoldfastError(f"{what} is no idx file of bytes; give one as of MNIST.")
    axes = raw[3]
    if len(raw) < 4 + 4 * axes:
        raise HoldfastError(f"{what} ends within its header; give the whole file.")
    shape = tuple(int(n) for n in np.frombuffer(raw[: 4 + 4 * axes], ">u4", offset=4))
    expected, found = math.prod(shape), len(raw) - 4 - 4 * axes
    if expected != found:
        raise HoldfastError(
            f"{what} has {found:,} values but its header says {shape}; give the whole file."
        )
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * axes).reshape(shape)


@explain_arguments
def emnist(
    split: str = "balanced",
    normalise: bool = False,
    folder: Folder = None,
    verify: bool = True,
    file: str | None = None,
) -> Dataset:
    """EMNIST: handwritten digits and letters of 28 x 28 pixels, in [0, 1]; their writers own them.

    Reads the `.mat` files of the official `matlab.zip`, from the archive or extracted, since only
    these know the writers. Images are turned upright: the files store them by columns. Labels of
    `letters` begin at 0, not at 1 as in the file. The archive's checksum is checked; for extracted
    files none is published.

    Args:
        split: `balanced` (47 classes), `byclass` (62), `bymerge` (47), `digits`, `letters` (26) or
            `mnist`.
        normalise: subtract the mean of the balanced split (0.1751) and divide by its deviation
            (0.3332).
        folder: instead of the cache folder; the files lie in it or in its subfolder `emnist`.
        verify: compare checksums.
        file: another file in the folder in the same format, such as a part of the set.
    """
    if split not in EMNIST_CLASSES:
        hint = did_you_mean(str(split), EMNIST_CLASSES)
        raise HoldfastError(f"emnist: unknown split `{split}`; {hint}", about=("split",))
    if file is None:
        members = {f"matlab/emnist-{split}.mat": ""}
        (raw,) = contents("emnist", Archive(EMNIST, members), folder, verify)
    else:
        path = home("emnist", folder, [file]) / file
        if not path.exists():
            raise HoldfastError(
                f"emnist: {path} is missing; give the name of a file in that folder.",
                about=("file",),
            )
        raw = path.read_bytes()
    parts = read_emnist(raw)
    first = 1 if split == "letters" else 0
    scale = EMNIST_SCALE if normalise else None
    train, test = (
        _examples("emnist", images[..., None], labels - first, scale)
        for images, labels, _ in (parts["train"], parts["test"])
    )
    owners, test_owners = parts["train"][2], parts["test"][2]
    return Dataset(train, test, owners, test_owners, EMNIST_CLASSES[split])


def read_emnist(raw: bytes) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Upright images, labels and writers of `train` and `test`, from an official `.mat` file."""
    scipy_io = optional("scipy.io", "SciPy", "emnist")
    try:
        check_matlab(raw, "emnist: the file")
        dataset = scipy_io.loadmat(io.BytesIO(raw), simplify_cells=True)["dataset"]
        parts = {part: dataset[part] for part in ("train", "test")}
        return {
            name: (
                np.asarray(part["images"]).reshape(-1, 28, 28).transpose(0, 2, 1),
                np.asarray(part["labels"]).reshape(-1).astype(np.int32),
                np.asarray(part["writers"]).reshape(-1).astype(np.int32),
            )
            for name, part in parts.items()
        }
    except HoldfastError:
        raise
    # Of a broken file SciPy raises whatever it trips over.
    except Exception as error:
        raise HoldfastError(
            f"emnist: the file cannot be read ({' '.join(str(error).split())}); give a .mat file of the "
            f"official matlab.zip."
        ) from None


@explain_arguments
def cifar10(
    batches: int = 5, normalise: bool = False, folder: Folder = None, verify: bool = True
) -> Dataset:
    """CIFAR-10: 50,000 and 10,000 colour pictures of 32 x 32 pixels in 10 classes, in [0, 1].

    Reads the binary version, from the official archive or the extracted `cifar-10-batches-bin`.
    Checksums are published ones.

    Args:
        batches: how many of the five training files, of 10,000 pictures each.
        normalise: subtract the usual mean of each channel and divide by its usual deviation.
        folder: instead of the cache folder; the files lie in it or in its subfolder `cifar10`.
        verify: compare checksums.
    """
    if not isinstance(batches, int) or not 1 <= batches <= 5:
        raise HoldfastError(
            f"cifar10: batches={batches!r}; give a whole number 1..5.", about=("batches",)
        )
    members = dict(list(CIFAR10_BATCHES.items())[:batches]) | CIFAR10_TEST
    *train, test = contents(
        "cifar10",
        Archive(CIFAR10, members),
        folder,
        verify,
        ", or give `batches` the number of training files there are",
    )
    scale = CIFAR10_SCALE if normalise else None
    seen, unseen = (_cifar("cifar10", raw, 1, 0, scale) for raw in (b"".join(train), test))
    return Dataset(seen, unseen, classes=10)


@explain_arguments
def cifar100(
    fine: bool = True, normalise: bool = False, folder: Folder = None, verify: bool = True
) -> Dataset:
    """CIFAR-100: 50,000 and 10,000 colour pictures of 32 x 32 pixels in 100 classes, in [0, 1].

    Reads the binary version, from the official archive or the extracted `cifar-100-binary`.
    Checksums are published ones.

    Args:
        fine: 100 classes, otherwise the 20 they belong to.
        normalise: subtract the usual mean of each channel and divide by its usual deviation.
        folder: instead of the cache folder; the files lie in it or in its subfolder `cifar100`.
        verify: compare checksums.
    """
    column, classes = (1, 100) if fine else (0, 20)
    scale = CIFAR100_SCALE if normalise else None
    read = contents("cifar100", Archive(CIFAR100, CIFAR100_MEMBERS), folder, verify)
    train, test = (_cifar("cifar100", raw, 2, column, scale) for raw in read)
    return Dataset(train, test, classes=classes)


def _cifar(of: str, raw: bytes, label_bytes: int, column: int, scale: Scale | None) -> Examples:
    images, labels = read_cifar(raw, label_bytes, of)
    return _examples(of, images, labels[:, column], scale)


def read_cifar(
    raw: bytes, label_bytes: int = 1, what: str = "cifar"
) -> tuple[np.ndarray, np.ndarray]:
    """Images (height, width, channels) and labels, from records of the binary version.

    Example:
        >>> images, labels = read_cifar(bytes([7]) + bytes(3 * 1024))
        >>> images.shape, labels.tolist()
        ((1, 32, 32, 3), [[7]])
    """
    record = label_bytes + 3 * 32 * 32
    if not raw or len(raw) % record:
        raise HoldfastError(
            f"{what}: {len(raw):,} bytes are not whole records of {record}; give the binary version."
        )
    rows = np.frombuffer(raw, np.uint8).reshape(-1, record)
    pixels = rows[:, label_bytes:].reshape(-1, 3, 32, 32)
    return pixels.transpose(0, 2, 3, 1), rows[:, :label_bytes]


def _examples(of: str, images: np.ndarray, labels: np.ndarray, scale: Scale | None) -> Examples:
    if len(images) != len(labels):
        raise HoldfastError(
            f"{of}: {len(images)} images but {len(labels)} labels; give files of the same set."
        )
    return Examples(as_floats(images, scale), np.ascontiguousarray(labels, np.int32))


def as_floats(images: np.ndarray, scale: Scale | None) -> Any:
    """Bytes as float32 in [0, 1], or standardised by channel."""
    x = np.ascontiguousarray(images, np.float32)
    x /= np.float32(255)
    if scale is not None:
        mean, deviation = (np.asarray(part, np.float32) for part in scale)
        x -= mean
        x /= deviation
    return x
