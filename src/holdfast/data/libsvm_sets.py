"""Data sets of the LIBSVM collection by name."""

import dataclasses
from pathlib import Path

import numpy as np

from holdfast.data.cache import File, Folder, check, home, obtain
from holdfast.data.checks import check_share, generator
from holdfast.data.clients import Examples
from holdfast.data.dataset import Dataset
from holdfast.data.libsvm import libsvm
from holdfast.errors import HoldfastError, did_you_mean, explain_arguments

SITE = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets"
# Where the collection has no test file.
TEST_SHARE = 0.2


@dataclasses.dataclass(frozen=True)
class Listed:
    """A set of the collection: its files, its number of columns and its place on the site."""

    train: str
    features: int
    test: str = ""
    kind: str = "binary"


SETS = {
    **{f"a{k}a": Listed(f"a{k}a", 123, f"a{k}a.t") for k in range(1, 10)},
    **{f"w{k}a": Listed(f"w{k}a", 300, f"w{k}a.t") for k in range(1, 9)},
    "australian": Listed("australian", 14),
    "breast-cancer": Listed("breast-cancer", 10),
    "cod-rna": Listed("cod-rna", 8, "cod-rna.t"),
    "covtype": Listed("covtype.libsvm.binary.scale.bz2", 54),
    "diabetes": Listed("diabetes", 8),
    "german": Listed("german.numer", 24),
    "gisette": Listed("gisette_scale.bz2", 5000, "gisette_scale.t.bz2"),
    "heart": Listed("heart", 13),
    "ijcnn1": Listed("ijcnn1.bz2", 22, "ijcnn1.t.bz2"),
    "ionosphere": Listed("ionosphere_scale", 34),
    "mushrooms": Listed("mushrooms", 112),
    "phishing": Listed("phishing", 68),
    "sonar": Listed("sonar_scale", 60),
    "splice": Listed("splice", 60, "splice.t"),
    "letter": Listed("letter.scale", 16, "letter.scale.t", "multiclass"),
    "pendigits": Listed("pendigits", 16, "pendigits.t", "multiclass"),
    "satimage": Listed("satimage.scale", 36, "satimage.scale.t", "multiclass"),
    "usps": Listed("usps.bz2", 256, "usps.t.bz2", "multiclass"),
}


@explain_arguments
def libsvm_set(
    which: str,
    test_share: float | None = None,
    seed: int = 0,
    folder: Folder = None,
    verify: bool = True,
) -> Dataset:
    """A set of the LIBSVM collection by name, such as `a9a`, `w6a`, `mushrooms` or `ijcnn1`.

    Inputs are dense; labels are 0, 1, ... in the order of the file's labels. Checksums are not
    published: those of the first download are kept in `CHECKSUMS` beside the files.

    Args:
        which: its name, one of `SETS`.
        test_share: draw so much of the training file to test on. By default the collection's test
            file is used, and a fifth where there is none.
        seed: draws those rows.
        folder: instead of the cache folder; the files, as on the site or decompressed, lie in it or
            in its subfolder `libsvm`.
        verify: compare checksums.
    """
    if which not in SETS:
        raise HoldfastError(
            f"libsvm_set: unknown set `{which}`; {did_you_mean(str(which), SETS)}", about=("which",)
        )
    if test_share is not None:
        check_share("libsvm_set", test_share)
    listed = SETS[which]
    train = libsvm(_path(listed, listed.train, folder, verify), listed.features)
    classes = len(np.unique(train.y))
    if listed.test and test_share is None:
        test = libsvm(_path(listed, listed.test, folder, verify), listed.features)
        # With other labels in one file, equal numbers may mean different labels.
        if len(np.unique(test.y)) != classes:
            raise HoldfastError(
                f"libsvm_set: {listed.test} has {len(np.unique(test.y))} labels but "
                f"{listed.train} {classes}; give files of the same set."
            )
        return Dataset(train, test, classes=classes)
    order = generator(seed).permutation(len(train.y))
    cut = round(len(order) * (TEST_SHARE if test_share is None else test_share))
    kept, held_out = np.sort(order[cut:]), np.sort(order[:cut])
    seen, unseen = (Examples(train.x[rows], train.y[rows]) for rows in (kept, held_out))
    return Dataset(seen, unseen, classes=classes)


def _path(listed: Listed, name: str, folder: Folder, verify: bool) -> Path:
    bare = name.removesuffix(".bz2")
    decompressed = home("libsvm", folder, [bare]) / bare
    if decompressed.exists():
        check("libsvm_set", decompressed, File(bare), verify)
        return decompressed
    return obtain("libsvm", [File(name, (f"{SITE}/{listed.kind}/{name}",))], folder, verify)[0]
