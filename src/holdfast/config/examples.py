"""Experiment files to start from."""

from importlib import resources

from holdfast.errors import HoldfastError, did_you_mean


def names() -> list[str]:
    """The examples there are."""
    folder = resources.files("holdfast.config") / "templates"
    return sorted(
        f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml")
    )


def title(name: str) -> str:
    """What one of them is about, in a sentence: its first line."""
    return text(name).partition("\n")[0].removeprefix("# ")


def text(name: str) -> str:
    """One of them."""
    if name not in names():
        raise HoldfastError(f"--example {name}: unknown; {did_you_mean(name, names())}")
    return (resources.files("holdfast.config") / "templates" / f"{name}.toml").read_text("utf-8")
