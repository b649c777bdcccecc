"""What pyproject.toml cannot say: the README as a package index can show it."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent


def for_an_index(text: str, repository: str | None) -> str:
    """A README away from its repository: links and images by its address, or if it has none without them."""
    text = re.sub(r"<!-- =.*?-->", "", text)
    local = r"\[([^\]]*)\]\((?!https?:|#)([^)]*)\)"
    if repository is None:
        text = re.sub(rf"^!{local}\n\n", "", text, flags=re.MULTILINE)
        return re.sub(local, r"\1", text)
    text = re.sub(f"!{local}", rf"![\1]({repository}/raw/main/\2)", text)
    return re.sub(f"(?<!!){local}", rf"[\1]({repository}/blob/main/\2)", text)


if __name__ == "__main__":
    project = tomllib.loads((HERE / "pyproject.toml").read_text("utf-8"))["project"]
    setup(
        long_description=for_an_index(
            (HERE / "README.md").read_text("utf-8"), project.get("urls", {}).get("Repository")
        ),
        long_description_content_type="text/markdown",
    )
