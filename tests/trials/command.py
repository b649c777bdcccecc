"""The command in processes of its own that start at once: forked from one that has imported everything."""

import dataclasses
import multiprocessing
import os
import resource
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Everything a run needs is imported once; no program has been compiled, so no thread has been started.
PRELOADED = (
    "holdfast.cli",
    "holdfast.config.build",
    "holdfast.runs.execute",
    "holdfast.runs.compare",
    "lmdb",
    "sklearn.datasets",
)
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([__name__, *PRELOADED])


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a command ended: its exit code, negative for a signal, and what it said on standard error."""

    words: tuple[str, ...]
    code: int
    said: str

    @property
    def is_refusal(self) -> bool:
        """One line that says what is wrong and what to do."""
        lines = [line for line in self.said.splitlines() if line.startswith("error ")]
        return (
            self.code in (2, 74, 75)
            and "Traceback" not in self.said
            and len(lines) == 1
            and any(mark in lines[0] for mark in (";", ". "))
        )

    def __str__(self) -> str:
        return f"holdfast {' '.join(self.words)}: exit code {self.code}\n{self.said}"


class Command:
    """One `holdfast ...`, running in a folder."""

    def __init__(self, *words: str, cwd: Path, largest_file: int | None = None) -> None:
        # Both ways, for who is forked and for who is started: PYTHONPATH is all that reaches them.
        os.environ["PYTHONPATH"] = f"{ROOT}{os.pathsep}{ROOT / 'src'}"
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cwd / "compiled"))
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
        self.words = words
        self._said, saying = _context.Pipe(duplex=False)
        environment = {
            n: v for n, v in os.environ.items() if n.startswith(("JAX", "XLA", "PYTHON"))
        }
        self.process = _context.Process(
            target=_run, args=(words, str(cwd), saying, environment, largest_file)
        )
        self.process.start()
        saying.close()

    def kill(self) -> None:
        """SIGKILL, as the operating system or a power cut would."""
        self.process.kill()

    def end(self) -> Outcome:
        """Wait for it."""
        self.process.join(300)
        code = self.process.exitcode
        if code is None:
            self.process.kill()
            raise AssertionError(f"holdfast {' '.join(self.words)}: still there after 300 s")
        return Outcome(self.words, code, _all_of(self._said).decode(errors="replace"))


def _all_of(pipe) -> bytes:
    # What is left in it; whoever was started by the process may still have the other end.
    found = b""
    while pipe.poll(0) and (part := os.read(pipe.fileno(), 1 << 16)):
        found += part
    pipe.close()
    return found


def run(*words: str, cwd: Path, largest_file: int | None = None) -> Outcome:
    """Run a command to its end."""
    return Command(*words, cwd=cwd, largest_file=largest_file).end()


def _run(words, cwd, saying, environment, largest_file):
    os.environ.update(environment)
    os.chdir(cwd)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(saying.fileno(), 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    sys.argv = ["holdfast", *words]
    if largest_file is not None:
        # As on a full disk, writing fails in the middle of a file, whoever runs this.
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    import jax

    for name, value in environment.items():  # JAX has read these when it was imported
        if name == "JAX_COMPILATION_CACHE_DIR":
            jax.config.update("jax_compilation_cache_dir", value)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    from holdfast import cli

    cli.main()
