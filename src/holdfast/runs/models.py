"""The models of a run as files of its folder."""

from collections.abc import Callable

from holdfast.engine.saving import Saving
from holdfast.saved.file import content


def as_files(
    saving: Saving, told: Callable[[str], None] | None = None
) -> tuple[bytes, bytes | None]:
    """The server's model; and every client's own, where they use others and there is room.

    `told` hears of models that are left out.
    """
    if not saving.personal:
        return content(*saving.server()), None
    if not saving.simulation.setup.clients.here:
        return content(*saving.server("clients' own models stay at their sites")), None
    room = saving.simulation.setup.storage.personal_bytes
    if saving.personal_bytes <= room:
        return content(*saving.server()), content(*saving.everybody())
    why = (
        f"all clients' own models are {saving.personal_bytes / 1e9:.3g} GB, and `personal` of [storage] "
        f"is {room / 1e9:.3g} GB, so that they are not kept; raise it and run again."
    )
    if told is not None:
        told(why)
    return content(*saving.server(why)), None
