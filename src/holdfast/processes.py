"""One run in several processes, on one machine or on many: every process runs the same program.

Whatever they decide, they decide from numbers that all of them have, so nobody waits in vain. The first
one writes; all others only compute.
"""

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import jax
import numpy as np
from jax import tree

from holdfast.errors import HoldfastError
from holdfast.trees import Tree

COORDINATOR, COUNT, RANK = "HOLDFAST_COORDINATOR", "HOLDFAST_PROCESSES", "HOLDFAST_RANK"
LAUNCHER = "HOLDFAST_LAUNCHER"  # a pipe that closes when the launcher ends
LOST = 75  # exit code: try again later, from the checkpoint
_HEARTBEAT = 20  # seconds without a sign of life
_GRACE = 15  # seconds for the others to say what they saw
_TURN = 1  # seconds in which the first one says what is wrong
_PATIENCE = 600  # seconds for all to arrive
_coordinator: list[str] = []  # as it was given


class LostProcessError(HoldfastError):
    """Another process of this run is gone."""

    exit_code = LOST


def count() -> int:
    """Processes of this run."""
    return jax.process_count()


def rank() -> int:
    """Which of them this is."""
    return jax.process_index()


def is_first() -> bool:
    """Whether this is the one that writes."""
    return rank() == 0


def connect(coordinator: str, processes: int, rank: int) -> None:
    """Meet the other processes; before JAX is used for anything else.

    Args:
        coordinator: host and port at which the first process is reached, such as `10.0.0.1:7000`.
        processes: how many there are.
        rank: which one this is, from 0.
    """
    if not 0 <= rank < processes:
        raise HoldfastError(
            f"processes: rank={rank} of {processes}; give a number in 0..{processes - 1}, another one "
            f"to each."
        )
    if ":" not in coordinator:
        raise HoldfastError(
            f"processes: coordinator={coordinator!r}; give host and port of the process with rank 0, "
            f"such as 10.0.0.1:7000."
        )
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    _coordinator.append(coordinator)
    jax.distributed.initialize(
        coordinator,
        processes,
        rank,
        initialization_timeout=_PATIENCE,
        heartbeat_timeout_seconds=_HEARTBEAT,
        shutdown_timeout_seconds=_HEARTBEAT,
    )


def own_address() -> str:
    """Where the others reach this process: from where it reaches the first, or by its host's name."""
    if not _coordinator:
        return socket.gethostbyname(socket.gethostname())
    host, _, port = _coordinator[-1].rpartition(":")
    # Nothing is sent: the system only looks up which way it would go.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, int(port)))
        return str(probe.getsockname()[0])


def connect_from_environment() -> None:
    """Meet the others if the environment says that there are any; end when who started them does."""
    if LAUNCHER in os.environ:
        pipe = int(os.environ[LAUNCHER])
        threading.Thread(target=_end_with_launcher, args=(pipe,), daemon=True).start()
    if COORDINATOR in os.environ:
        connect(os.environ[COORDINATOR], int(os.environ[COUNT]), int(os.environ[RANK]))


def _end_with_launcher(pipe: int) -> None:
    # Nothing is ever written to it: reading returns when the other end is closed, at the latest by the
    # operating system when the launcher was killed.
    os.read(pipe, 1)
    os._exit(LOST)


def let_the_first_speak() -> None:
    """Before this process ends with an error: what all of them refuse is said once, by the first."""
    if os.environ.get(RANK, "0") != "0":
        time.sleep(_TURN)


def wait_for_all(what: str) -> None:
    """Go on when everybody is here."""
    if count() > 1:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices(what)


def told_by_first(text: str) -> str:
    """The first process's text, to all."""
    if count() == 1:
        return text
    from jax.experimental import multihost_utils

    size = 4096
    content = np.frombuffer(text.encode().ljust(size, b"\0")[:size], np.uint8)
    found = multihost_utils.broadcast_one_to_all(content)
    return bytes(np.asarray(found)).rstrip(b"\0").decode()


def gathered(arrays: Tree) -> Tree:
    """What every process has, along a leading axis, at all of them; of equal shapes."""
    from jax.experimental import multihost_utils

    return tree.map(np.asarray, multihost_utils.process_allgather(arrays))


def is_loss(error: BaseException) -> bool:
    """Whether an exception means that another process is gone."""
    words = (
        "Gloo",
        "coordination service",
        "Connection reset by peer",
        "Connection closed by peer",
    )
    return count() > 1 and any(word in str(error) for word in words)


def launch(command: Sequence[str], processes: int) -> int:
    """Run a command in several processes of this machine; the exit code of the first that fails."""
    address = f"127.0.0.1:{_free_port()}"
    alive, kept = os.pipe()
    with ExitStack() as open_files:
        open_files.callback(os.close, alive)
        # Only this process has the other end.
        open_files.callback(os.close, kept)
        notes = [open_files.enter_context(tempfile.TemporaryFile()) for _ in range(processes)]
        children = []
        for k, note in enumerate(notes):
            told = {COORDINATOR: address, COUNT: str(processes), RANK: str(k), LAUNCHER: str(alive)}
            quiet: Any = {} if k == 0 else {"stdout": subprocess.DEVNULL, "stderr": note}
            # A session of its own: Ctrl-C reaches only this process, which ends the others.
            children.append(
                subprocess.Popen(
                    command,
                    env=os.environ | told,
                    start_new_session=True,
                    pass_fds=(alive,),
                    **quiet,
                )
            )
        try:
            return _watch(children, notes)
        except KeyboardInterrupt:
            return 130
        finally:
            _end(children)


def _end(children: Sequence[subprocess.Popen[bytes]]) -> None:
    for child in children:
        child.terminate()
    for child in children:
        try:
            child.wait(_GRACE)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _watch(children: Sequence[subprocess.Popen[bytes]], notes: Sequence[Any]) -> int:
    """Until all are done, or one has failed and the others have had time to say so."""
    failed: int | None = None
    deadline = 0.0
    while True:
        codes = [child.poll() for child in children]
        bad = [k for k, code in enumerate(codes) if code not in (None, 0)]
        if bad and failed is None:
            failed, deadline = bad[0], time.monotonic() + _GRACE
            if codes[bad[0]] not in (LOST, None) and (codes[bad[0]] or 0) > 0:
                # It said why itself; the others have nothing to add.
                deadline = 0.0
        over = all(code is not None for code in codes)
        if over or (failed is not None and time.monotonic() > deadline):
            break
        time.sleep(0.05)
    if failed is None:
        return 0
    # One that was killed is the cause; who lost it only followed.
    killed = [k for k, code in enumerate(codes) if code is not None and code < 0]
    cause = killed[0] if killed else failed
    code = codes[cause]
    if code is not None and code < 0:
        print(f"process {cause} of {len(children)} was killed (signal {-code}).", file=sys.stderr)
        return LOST
    notes[cause].seek(0)
    said = notes[cause].read().decode(errors="replace").strip().splitlines()
    if said and cause:
        print(f"process {cause} of {len(children)}: {said[-1]}", file=sys.stderr)
    return int(code or 1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
