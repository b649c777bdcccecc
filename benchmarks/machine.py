"""What the numbers were measured on."""

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

from sides import ENVIRONMENTS, SIDES


def _first(path: str, key: str) -> str:
    found = [li.split(":", 1)[1].strip() for li in Path(path).read_text().splitlines() if key in li]
    return found[0] if found else "unknown"


def describe() -> list[str]:
    """Lines about the machine."""
    linux = Path("/proc/cpuinfo").exists()
    processor = _first("/proc/cpuinfo", "model name") if linux else platform.processor()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = f"{platform.system()} {platform.release().split('-')[0]}"
    return [
        f"- processor: {processor}, {os.cpu_count()} cores",
        f"- memory: {memory:.0f} GiB",
        f"- system: {system}, Python {platform.python_version()}",
        f"- holdfast {version('holdfast')}: " + _versions(None, ("jax", "jaxlib", "flax", "numpy")),
        *(
            f"- {name}: {_versions(name, _TOLD[name])}{_instead(name)}"
            for name in sorted({s.environment for s in SIDES.values() if s.environment})
        ),
    ]


def _instead(environment: str) -> str:
    """FedJAX may be timed from its repository instead of the released package."""
    checkout = environment == "fedjax" and os.environ.get("FEDJAX_SOURCE")
    return "; timed from a checkout of its repository (FEDJAX_SOURCE)" if checkout else ""


_TOLD = {
    "torch": ("torch", "numpy"),
    "pfl": ("pfl", "torch", "numpy"),
    "flower": ("flwr", "ray", "torch"),
    "fedjax": ("fedjax", "jax", "dm-haiku"),
    "drjax": ("drjax", "jax", "numpy"),
}


def _versions(environment: str | None, packages: tuple[str, ...]) -> str:
    if environment is None:
        return ", ".join(f"{p} {version(p)}" for p in packages)
    interpreter = ENVIRONMENTS / environment / "bin" / "python"
    if not interpreter.exists():
        return "not installed"
    code = (
        "import importlib.metadata as m, sys\n"
        "def v(p):\n"
        "    try: return m.version(p)\n"
        "    except m.PackageNotFoundError: return 'missing'\n"
        "print(', '.join(f'{p} {v(p)}' for p in sys.argv[1:]))"
    )
    asked = [str(interpreter), "-c", code, *packages]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
