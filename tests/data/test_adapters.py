"""Data from elsewhere keeps its rows together, its owners and its names."""

import io

import numpy as np
import pytest

import holdfast as hf

ROWS = 40
RNG = np.random.default_rng(0)
X = RNG.normal(size=(ROWS, 3))
Y = RNG.integers(0, 4, ROWS)
WHO = np.array([f"user {i}" for i in RNG.integers(0, 5, ROWS)])


def assert_same_rows(data, x, y, who=None):
    """Train and test are together the rows given, each once, label and owner beside its input."""
    parts = [data.train, data.test]
    given = sorted(
        zip(map(tuple, x.astype(np.float32)), y, x[:, 0] if who is None else who, strict=True)
    )
    owners = [part.x[:, 0] for part in parts] if who is None else [data.owners, data.test_owners]
    found = [
        row
        for part, own in zip(parts, owners, strict=True)
        for row in zip(map(tuple, part.x), part.y, own, strict=True)
    ]
    assert [row[:2] for row in sorted(found)] == [row[:2] for row in given]
    if who is not None:
        assert [row[2] for row in sorted(found)] == [row[2] for row in given]


def test_arrays_without_owners():
    data = hf.data.from_arrays(X, Y, test_share=0.25)
    assert_same_rows(data, X, Y)
    assert (len(data.train.y), len(data.test.y), data.classes) == (30, 10, 4)
    assert (data.train.x.dtype, data.train.y.dtype) == (np.float32, np.int32)
    again, other = (hf.data.from_arrays(X, Y, test_share=0.25, seed=s) for s in (0, 1))
    assert np.array_equal(data.test.x, again.test.x)
    assert not np.array_equal(data.test.x, other.test.x)
    with pytest.raises(hf.HoldfastError, match=r"does not say whose"):
        data.natural()


def test_arrays_hold_out_a_share_of_every_owner():
    data = hf.data.from_arrays(X, Y, client=WHO, test_share=0.25)
    assert_same_rows(data, X, Y, WHO)
    train, test = data.natural()
    sizes = np.unique(WHO, return_counts=True)[1]
    assert test.sizes.tolist() == np.round(sizes * 0.25).astype(int).tolist()
    assert (train.sizes + test.sizes).tolist() == sizes.tolist()


def test_an_owner_of_one_example_trains_on_it():
    data = hf.data.from_arrays(X[:4], Y[:4], client=[7, 8, 9, 9], test_share=0.9)
    train, test = data.natural()
    assert train.sizes.tolist() == [1, 1, 1]
    assert test.sizes.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("y", "expected", "classes"),
    [
        (["b", "a", "c", "a"], [1, 0, 2, 0], 3),
        (np.array(["b", "a", "c", "a"], object), [1, 0, 2, 0], 3),
        ([True, False, True, True], [1, 0, 1, 1], 2),
        ([3, 1, 0, 0], [3, 1, 0, 0], 4),
        ([-1, 1, 1, 1], [-1, 1, 1, 1], None),
        ([0.5, 1.5, 2.5, 0.0], [0.5, 1.5, 2.5, 0.0], None),
    ],
)
def test_labels_become_numbers(y, expected, classes):
    data = hf.data.from_arrays(np.arange(4.0)[:, None], y, test_share=0.0)
    assert data.train.y[np.argsort(data.train.x[:, 0])].tolist() == expected
    assert data.classes == classes


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": Y[:3]}, r"x has 40 rows, .*y has 3 rows; give every array one row per example"),
        ({"x": np.where(np.arange(ROWS) == 7, np.nan, 1.0)}, r"contains NaN, first in row 7"),
        ({"x": np.full(ROWS, "a")}, r"from_arrays: x is <U1 of shape \(40,\); give numbers"),
        ({"client": [1, 2]}, r"client of shape \(2,\) for 40 examples; give one per example"),
        ({"test_share": 1.0}, r"test_share=1\.0; give a number from 0 to below 1"),
    ],
)
def test_arrays_that_make_no_sense_are_refused(change, message):
    with pytest.raises(hf.HoldfastError, match=message):
        hf.data.from_arrays(**({"x": X, "y": Y} | change))


def table():
    pandas = pytest.importorskip("pandas")
    columns = {"age": X[:, 0], "weight": X[:, 1], "height": X[:, 2], "ill": Y, "clinic": WHO}
    return pandas.DataFrame(columns)


def test_tables_keep_columns_in_order_and_rows_together():
    assert_same_rows(hf.data.from_table(table(), "ill", "clinic", scale="none"), X, Y, WHO)
    some = hf.data.from_table(table(), "ill", features=["height", "age"], scale="none")
    assert_same_rows(some, X[:, [2, 0]], Y)
    one = hf.data.from_table(table(), "ill", features="height")
    assert one.train.x.shape == (32, 1)


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet"])
def test_tables_from_files(tmp_path, ending):
    frame, path = table(), tmp_path / f"data{ending}"
    if ending == ".parquet":
        pytest.importorskip("pyarrow")
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False)
    data = hf.data.from_table(str(path), label="ill", client="clinic", scale="none")
    assert_same_rows(data, X, Y, WHO)
    assert len(data.natural()[0]) == 5


def test_tables_of_many_types():
    frame = table().assign(
        smokes=Y > 1,
        parity=pytest.importorskip("pandas").array(Y, dtype="Int64"),
    )
    data = hf.data.from_table(
        frame, "clinic", features=["smokes", "parity"], test_share=0.0, scale="none"
    )
    assert data.train.x.dtype == np.float32
    assert np.array_equal(data.train.x, np.column_stack([Y > 1, Y]))
    assert data.classes == 5
    assert np.array_equal(data.train.y, np.unique(WHO, return_inverse=True)[1])


@pytest.mark.parametrize("kind", ["str", "object", "category"])
def test_names_are_encoded_when_asked_for(kind):
    frame = table().assign(sex=np.where(Y > 1, "w", "m")).astype({"sex": kind})
    with pytest.raises(
        hf.HoldfastError, match=r"column `sex` holds 2 different words such as .*categorical"
    ):
        hf.data.from_table(frame, "ill", "clinic", one_hot=False)
    data = hf.data.from_table(
        frame, "ill", "clinic", features=["age", "sex"], one_hot=True, test_share=0.0, scale="none"
    )
    expected = np.column_stack([X[:, 0], Y <= 1, Y > 1]).astype(np.float32)
    assert np.array_equal(data.train.x, expected)


@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        (
            lambda f: f.drop(index=5).reindex(range(ROWS)),
            {},
            r"row 5 \(from 0\), column `age` is missing and 4 more",
        ),
        (lambda f: f.assign(age=np.inf), {}, r"row 0 \(from 0\), column `age` is infinite"),
        (lambda f: f, {"label": "il"}, r"no column `il`; did you mean `ill`"),
        (lambda f: f, {"client": "hospital"}, r"no column `hospital`; known are age, weight"),
        (lambda f: f, {"features": []}, r"no columns with inputs; give at least one"),
        (lambda f: f[:0], {}, r"the table has no rows"),
        (lambda f: f.to_numpy(), {}, r"table is a ndarray; give a DataFrame or the path"),
        (lambda f: "nowhere.csv", {}, r"nowhere\.csv is missing; give the path of a file"),
        (lambda f: "data.xlsx", {}, r"data\.xlsx is no table; give a path ending in"),
        (lambda f: f.rename(columns={"age": "weight"}), {}, r"two columns are called `weight`"),
        (
            lambda f: f.assign(age=np.datetime64("2020-01-01")),
            {},
            r"column `age` holds datetime64.*; turn it into numbers",
        ),
    ],
)
def test_tables_that_make_no_sense_are_refused(change, arguments, message):
    with pytest.raises(hf.HoldfastError, match=message):
        hf.data.from_table(change(table()), **({"label": "ill", "client": "clinic"} | arguments))


class Columns(dict):
    """What is used of a datasets.Dataset."""

    column_names = property(list)

    def select(self, rows):
        return Columns({name: [values[i] for i in rows] for name, values in self.items()})


class Partitioner:
    """What is used of a flwr_datasets partitioner."""

    def __init__(self, dataset, parts):
        self.dataset, self.parts, self.num_partitions = dataset, parts, len(parts)

    def load_partition(self, partition_id):
        return self.dataset.select(self.parts[partition_id])


class Federated:
    """What is used of a flwr_datasets FederatedDataset."""

    def __init__(self, **partitioners):
        self.partitioners = partitioners

    def load_partition(self, partition_id, split=None):
        return self.partitioners[split].load_partition(partition_id)


def columns(**more):
    return Columns(
        row=X.tolist(), first=X[:, 0].tolist(), kind=Y.tolist(), who=WHO.tolist(), **more
    )


def test_columns_of_numbers():
    assert_same_rows(hf.data.from_hugging_face(columns(), "row", "kind", client="who"), X, Y, WHO)
    both = hf.data.from_hugging_face(columns(), ["first", "row"], "kind")
    assert_same_rows(both, X[:, [0, 0, 1, 2]], Y)


def test_splits_of_a_dictionary_are_kept():
    whole = columns()
    parts = {"train": whole.select(range(30)), "test": whole.select(range(30, 40))}
    data = hf.data.from_hugging_face(parts, "row", "kind", client="who")
    assert np.array_equal(data.train.x, X[:30].astype(np.float32))
    assert np.array_equal(data.test.y, Y[30:])
    assert data.test_owners.tolist() == WHO[30:].tolist()
    alone = hf.data.from_hugging_face({"train": whole}, "row", "kind", test_share=0.5)
    assert len(alone.test.y) == 20
    with pytest.raises(hf.HoldfastError, match=r"splits are test; give a DatasetDict with `train`"):
        hf.data.from_hugging_face({"test": whole}, "row", "kind")


@pytest.mark.parametrize(
    ("mode", "channels"), [("L", 1), ("RGB", 3), ("1", 1), ("RGBA", 3), ("P", 3), ("I;16", 1)]
)
def test_images_become_numbers_between_0_and_1(mode, channels):
    image = pytest.importorskip("PIL.Image")
    grey = image.fromarray(np.array([[0, 255, 0], [255, 0, 255]], np.uint8))
    if mode == "I;16":
        picture = image.fromarray(np.array([[0, 65535, 0], [65535, 0, 65535]], np.uint16))
    else:
        picture = grey.convert(mode)
    data = hf.data.from_hugging_face(
        Columns(image=[picture] * 4, label=[0, 1, 0, 1]), "image", "label", test_share=0.25
    )
    assert data.train.x.shape == (3, 2, 3, channels)
    assert data.train.x.dtype == np.float32
    assert data.train.x[0, :, :, 0].tolist() == [[0, 1, 0], [1, 0, 1]]
    odd = Columns(image=[picture, picture.resize((5, 5))], label=[0, 1])
    with pytest.raises(hf.HoldfastError, match=r"row 1 \(from 0\) is an image of shape \(5, 5, "):
        hf.data.from_hugging_face(odd, "image", "label")


@pytest.mark.parametrize(
    ("dataset", "features", "message"),
    [
        (columns(), "rows", r"no column `rows`; did you mean `row`"),
        (columns(), "who", r"column `who` holds text; turn it into numbers first"),
        (columns(), [], r"no features; give at least one column"),
        (
            columns(deep=np.zeros((ROWS, 2, 2)).tolist()),
            ["deep", "row"],
            r"`deep` has rows of shape",
        ),
        (
            columns(uneven=[[1]] * 39 + [[1, 2]]),
            "uneven",
            r"rows of column `uneven` differ in length",
        ),
        (columns(gap=[1.0] * 39 + [None]), "gap", r"row 39 \(from 0\), column `gap` is missing"),
        (columns(bad=[1.0] * 39 + [np.inf]), "bad", r"contains infinity, first in row 39"),
        (io.StringIO(), "row", r"a StringIO has no columns to read; give a datasets\.Dataset"),
    ],
)
def test_columns_that_make_no_sense_are_refused(dataset, features, message):
    with pytest.raises(hf.HoldfastError, match=message):
        hf.data.from_hugging_face(dataset, features, "kind")


def test_partitions_become_clients():
    parts = [range(10), [], range(30, 40)]
    partitioner = Partitioner(columns(), parts)
    for source in (partitioner, Federated(train=partitioner)):
        clients = hf.data.from_flower_partitions(source, "row", "kind")
        assert clients.sizes.tolist() == [10, 0, 10]
        assert np.array_equal(clients[2].x, X[30:].astype(np.float32))
        assert np.array_equal(clients[0].y, Y[:10])


def test_names_have_the_same_number_in_every_partition():
    partitioner = Partitioner(columns(), [np.flatnonzero(who == WHO) for who in np.unique(WHO)])
    clients = hf.data.from_flower_partitions(partitioner, "row", "who")
    assert [set(part.y.tolist()) for part in clients] == [{0}, {1}, {2}, {3}, {4}]


def test_partitions_that_make_no_sense_are_refused():
    partitioner = Partitioner(columns(), [[], []])
    with pytest.raises(hf.HoldfastError, match=r"all 2 partitions are empty"):
        hf.data.from_flower_partitions(partitioner, "row", "kind")
    with pytest.raises(hf.HoldfastError, match=r"split `test` is not partitioned; known are train"):
        hf.data.from_flower_partitions(Federated(train=partitioner), "row", "kind", split="test")
    with pytest.raises(
        hf.HoldfastError, match=r"a Columns has no partitions; give a FederatedDataset"
    ):
        hf.data.from_flower_partitions(columns(), "row", "kind")


def real():
    datasets = pytest.importorskip("datasets")
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(1).integers(0, 256, (ROWS, 6, 5, 3), dtype=np.uint8)
    names = datasets.ClassLabel(names=["a", "b", "c", "d", "never seen"])
    kinds = {"image": datasets.Image(), "kind": names, "who": datasets.Value("string")}
    lists = datasets.Sequence(datasets.Value("float32"))
    made = datasets.Dataset.from_dict(
        {"image": [image.fromarray(p) for p in pixels], "kind": Y, "who": WHO, "row": X},
        features=datasets.Features(kinds | {"row": lists}),
    )
    return made, pixels


def test_the_real_datasets():
    datasets = pytest.importorskip("datasets")
    made, pixels = real()
    assert_same_rows(hf.data.from_hugging_face(made, "row", "kind", client="who"), X, Y, WHO)
    for form in (made, made.with_format("numpy")):
        data = hf.data.from_hugging_face(form, "image", "kind", test_share=0.0)
        assert np.array_equal(data.train.x, pixels.astype(np.float32) / 255)
        assert data.classes == 5
    both = datasets.DatasetDict(train=made, test=made.select(range(7)))
    data = hf.data.from_hugging_face(both, "image", "kind")
    assert (len(data.train.y), len(data.test.y)) == (ROWS, 7)


def test_the_real_flower_partitions(tmp_path):
    flower = pytest.importorskip("flwr_datasets")
    made, _ = real()
    for partitioner in (
        flower.partitioner.IidPartitioner(num_partitions=7),
        flower.partitioner.NaturalIdPartitioner(partition_by="who"),
    ):
        partitioner.dataset = made
        clients = hf.data.from_flower_partitions(partitioner, "row", "kind")
        assert len(clients) == partitioner.num_partitions
        for i, part in enumerate(clients):
            assert part.y.tolist() == list(partitioner.load_partition(i)["kind"])
    files = {"train": str(tmp_path / "train.parquet"), "test": str(tmp_path / "test.parquet")}
    for path in files.values():
        made.remove_columns("image").to_parquet(path)
    federated = flower.FederatedDataset(
        dataset="parquet", partitioners={"train": 5}, data_files=files, cache_dir=str(tmp_path)
    )
    assert hf.data.from_flower_partitions(federated, "row", "kind").sizes.tolist() == [8] * 5
    test = hf.data.from_hugging_face(federated.load_split("test"), "row", "kind", test_share=0.0)
    assert len(test.train.y) == ROWS
