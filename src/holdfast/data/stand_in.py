"""Four hospitals, made up: the columns of UCI's heart disease data and what ails them."""

from pathlib import Path

import numpy as np

from holdfast.data.checks import generator
from holdfast.data.dataset import Dataset
from holdfast.data.tables import table
from holdfast.errors import explain_arguments, file_errors_said

COLUMNS = (
    *("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang"),
    *("oldpeak", "slope", "ca", "thal", "num"),
)
# Of each hospital: patients, share of the ill, and of columns the share of values that are missing. That
# of `chol` is written as 0 where it is all of them, as in Switzerland's real file.
_SITES: dict[str, tuple[int, float, dict[str, float]]] = {
    "cleveland": (303, 0.46, {"ca": 0.01, "thal": 0.01}),
    "hungarian": (294, 0.36, {"chol": 0.08, "slope": 0.65, "ca": 0.99, "thal": 0.9}),
    "switzerland": (123, 0.93, {"chol": 1.0, "fbs": 0.61, "ca": 0.96, "thal": 0.42}),
    "va": (200, 0.74, {"trestbps": 0.28, "thalach": 0.27, "slope": 0.51, "ca": 0.99, "thal": 0.83}),
}
_MISSING = "?"


@explain_arguments
def hospitals(
    test_share: float | None = None,
    seed: int = 0,
    leave_out: str = "",
    unseen: float = 0.0,
    validation_share: float = 0.0,
) -> Dataset:
    """Four hospitals' made-up records of 920 patients, 13 columns each; label 1 is heart disease.

    A stand-in for UCI's heart disease data, which is not passed on here: the same columns, sizes, shares
    of the ill and missing values, drawn at random. No number of it says anything about people.
    `holdfast new --example hospitals` writes them as files, one per hospital.

    Args:
        test_share: share of every hospital's patients to test on; 0.2 unless test rows are said otherwise.
        seed: draws them; the records are always the same.
        leave_out: a hospital that is tested on and trains nothing.
        unseen: share of the hospitals that are tested on and train nothing, drawn.
        validation_share: share of every hospital's patients to choose by.

    Example:
        >>> import holdfast as hf
        >>> clients, tests = hf.data.hospitals().natural()
        >>> clients.names
        ('cleveland', 'hungarian', 'switzerland', 'va')
        >>> clients.sizes.tolist()
        [242, 235, 98, 160]
    """
    sites = {name: records(name) for name in _SITES}
    together = {
        column: np.concatenate([site[column] for site in sites.values()]) for column in COLUMNS
    }
    sizes = [len(site["num"]) for site in sites.values()]
    return table(
        together | {"hospital": np.repeat(list(sites), sizes)},
        label="num",
        client="hospital",
        test_share=test_share,
        seed=seed,
        missing="median",
        indicator=True,
        categorical=["cp", "restecg", "slope", "thal"],
        na_values={"*": [_MISSING], "chol": [0]},
        positive=[1, 2, 3, 4],
        leave_out=leave_out or (),
        unseen=unseen,
        validation_share=validation_share,
    )


def write_sites(folder: Path) -> list[Path]:
    """The hospitals as files of raw text, `cleveland.csv` and so on, with a first line of names."""
    with file_errors_said(path=folder):
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for name in _SITES:
            columns = records(name)
            rows = zip(*(columns[column] for column in COLUMNS), strict=True)
            lines = [",".join(COLUMNS), *(",".join(row) for row in rows)]
            path = folder / f"{name}.csv"
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
            written.append(path)
    return written


def records(site: str) -> dict[str, np.ndarray]:
    """One hospital's patients, as the texts of a raw file by column."""
    patients, prevalence, missing = _SITES[site]
    rng = generator(list(_SITES).index(site))
    ill = rng.random(patients) < prevalence
    # How ill: 0 is not, 4 is most.
    degree = np.where(ill, rng.choice([1, 2, 3, 4], patients, p=[0.5, 0.22, 0.2, 0.08]), 0)

    def normal(centre: float, shift: float, deviation: float) -> np.ndarray:
        return rng.normal(centre + shift * ill, deviation)

    def either(share: float, shift: float) -> np.ndarray:
        return (rng.random(patients) < share + shift * ill).astype(int)

    def one_of(values: list[int], well: list[float], sick: list[float]) -> np.ndarray:
        return np.where(
            ill, rng.choice(values, patients, p=sick), rng.choice(values, patients, p=well)
        )

    found = {
        "age": normal(51, 4, 9).clip(28, 77).round().astype(int),
        "sex": either(0.65, 0.22),
        "cp": one_of([1, 2, 3, 4], [0.08, 0.36, 0.31, 0.25], [0.04, 0.06, 0.15, 0.75]),
        "trestbps": normal(130, 4, 18).clip(90, 200).round().astype(int),
        "chol": normal(238, 12, 55).clip(85, 600).round().astype(int),
        "fbs": either(0.12, 0.06),
        "restecg": one_of([0, 1, 2], [0.64, 0.14, 0.22], [0.56, 0.22, 0.22]),
        "thalach": normal(150, -20, 23).clip(60, 202).round().astype(int),
        "exang": either(0.15, 0.45),
        "oldpeak": normal(0.5, 0.8, 0.9).clip(0, 6).round(1),
        "slope": one_of([1, 2, 3], [0.62, 0.33, 0.05], [0.26, 0.66, 0.08]),
        "ca": one_of([0, 1, 2, 3], [0.8, 0.14, 0.04, 0.02], [0.36, 0.32, 0.2, 0.12]),
        "thal": one_of([3, 6, 7], [0.77, 0.05, 0.18], [0.3, 0.1, 0.6]),
        "num": degree,
    }
    texts = {column: values.astype(str).astype(object) for column, values in found.items()}
    for column, share in missing.items():
        texts[column][rng.random(patients) < share] = "0" if share == 1 else _MISSING
    return texts
