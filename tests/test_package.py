"""What is packaged: every file that the library reads, and a description that a package index can show."""

import importlib.util
import re
import tomllib
from pathlib import Path

import holdfast

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def setup():
    spec = importlib.util.spec_from_file_location("holdfast_setup", ROOT / "setup.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_file_beside_the_code_is_packaged():
    package = Path(holdfast.__file__).parent
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["holdfast"]
    packaged = {path for pattern in patterns for path in package.glob(pattern)}
    there = {p for p in package.rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    assert {p for p in there - packaged if p.suffix != ".py"} == set()
    # A folder of code without it would be left out.
    for folder in {p.parent for p in there if p.suffix == ".py"}:
        assert (folder / "__init__.py").exists()


def test_an_index_shows_a_readme_without_broken_links():
    text = (ROOT / "README.md").read_text("utf-8")
    linked = re.compile(r"\]\((?!https?:|#)")
    assert linked.search(text)
    address = "https://example.org/holdfast"
    alone, at = setup().for_an_index(text, None), setup().for_an_index(text, address)
    assert not linked.search(alone)
    assert not linked.search(at)
    assert "![" not in alone
    assert "<!--" not in alone
    assert f"]({address}/raw/main/docs/images/report.png)" in at

    text = (
        "![A page](a.png)\n\nSee [b](docs/b.md), [c](https://c.org) and <!-- =n -->3<!-- = -->.\n"
    )
    assert setup().for_an_index(text, None) == "See b, [c](https://c.org) and 3.\n"
    assert setup().for_an_index(text, address) == (
        f"![A page]({address}/raw/main/a.png)\n\n"
        f"See [b]({address}/blob/main/docs/b.md), [c](https://c.org) and 3.\n"
    )


def test_it_says_who_made_it_and_nothing_that_is_not_so():
    project = PROJECT["project"]
    assert project["authors"] == [{"name": "holdfast developers"}]
    for address in project.get("urls", {}).values():
        assert address.startswith("https://")
        assert "example" not in address
    assert "Programming Language :: Python :: 3.11" in project["classifiers"]
    assert project["requires-python"] == ">=3.11"
