"""`site.toml`: where a site's own data is, and what it takes part in. It stays at the site.

name = "north"                 # as the server knows it
folder = "north"               # what it remembers; paths are relative to this file

[data]
path = "north.csv"             # a table; or `file`, arrays x and y; or `function`, a function of its own
test = 0.2                     # a share that is held out; or `test_path`, a file of its own

[allow]                        # unless given, what the app brings
experiments = ["8c1e..."]      # digests of experiment files
algorithms = ["0f3a..."]
models = ["77d1..."]
"""

from pathlib import Path
from typing import Any

from holdfast.deploy.file_site import FileSite
from holdfast.deploy.site import Site
from holdfast.deploy.site_data import KEYS, SiteData, read_toml
from holdfast.deploy.study import Study
from holdfast.engine.experiment import Experiment
from holdfast.errors import HoldfastError

_KEYS: dict[str, dict[str, Any]] = {
    "": {"name": str, "folder": str, "data": dict, "allow": dict},
    "data": KEYS,
    "allow": {"experiments": list, "algorithms": list, "models": list},
}


def site_from_file(
    path: str | Path, experiment: Experiment | Study | str | Path
) -> Site | FileSite:
    """A site as its file describes it.

    Args:
        path: of `site.toml`.
        experiment: what the app runs: an experiment, or an experiment file.
    """
    path = Path(path)
    if isinstance(experiment, str | Path):
        experiment = from_file(experiment)
    given = read_toml(path, _KEYS)
    missing = [key for key in ("name", "folder", "data") if key not in given]
    if missing:
        raise HoldfastError(f"{path}: `{missing[0]}` is missing.", about=(missing[0],))
    allow = given.get("allow", {})
    try:
        data = SiteData(path.parent, given["data"])
        if not isinstance(experiment, Experiment):
            return FileSite(
                experiment,
                data,
                path.parent / given["folder"],
                given["name"],
                allow.get("experiments"),
                allow.get("algorithms"),
                allow.get("models"),
            )
        if "experiments" in allow:
            raise HoldfastError(
                "`experiments` of [allow] are experiment files, and this app makes its experiment in Python; "
                "give `algorithms` and `models`.",
                about=("allow",),
            )
        train, tests = data.examples()
    except HoldfastError as error:
        raise HoldfastError(f"{path}: {error}", about=error.about) from None
    return Site(
        experiment,
        train,
        path.parent / given["folder"],
        given["name"],
        tests=tests,
        algorithms=allow.get("algorithms"),
        models=allow.get("models"),
    )


def from_file(
    path: str | Path, method: str = "", seed: int | None = None, server: str | Path | None = None
) -> Study:
    """An experiment file as a federation runs it, for `hf.deploy.run` and `hf.deploy.site_from_file`.

    Sites are named by `sites.toml` beside the file; without one, by the clients of the simulated data, which
    is then loaded for it.

    Args:
        path: of the experiment file, as `holdfast run` simulates it.
        method: which of its methods, by its label; needed at the server where there are several.
        seed: of the run; the file's first unless given.
        server: a file whose `[data]` says where the server's own data is, for methods in which it learns.
    """
    # Experiment files are read by a room above this one, which needs all that is here.
    from holdfast.config import deployment

    return deployment.from_file(path, method, seed, server)
