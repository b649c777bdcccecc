"""Damages to a file, as disks and hands do them; which one is a function of a seed."""

import random
from pathlib import Path

KINDS = ("bit", "byte", "cut", "emptied", "zeroed", "removed")


def damage(path: Path, kind: str, draw: random.Random) -> None:
    """Change a file; every kind but `zeroed` of a file of zeros changes it for certain."""
    content = bytearray(path.read_bytes())
    if kind == "removed":
        path.unlink()
        return
    if kind == "emptied" or not content:
        content = bytearray() if content else bytearray(b"\x07")
    elif kind == "bit":
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    elif kind == "byte":
        content[draw.randrange(len(content))] ^= draw.randrange(1, 256)
    elif kind == "cut":
        del content[draw.randrange(len(content)) :]
    elif kind == "zeroed":
        begin = draw.randrange(len(content))
        end = min(len(content), begin + draw.choice((16, 512, 4096)))
        content[begin:end] = bytes(end - begin)
    path.write_bytes(content)
