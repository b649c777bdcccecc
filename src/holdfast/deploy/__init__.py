"""The same experiment at real sites: messages in bytes, the site's half, the server's half.

Nothing here knows how bytes travel: that is a `Transport`.
"""

from holdfast.deploy.collect import NoQuorumError, Patience
from holdfast.deploy.federate import population, run
from holdfast.deploy.replies import Limits
from holdfast.deploy.site import Site
from holdfast.deploy.site_file import site_from_file
from holdfast.deploy.transport import Arrival, InProcess, Transport

__all__ = [
    "Arrival",
    "InProcess",
    "Limits",
    "NoQuorumError",
    "Patience",
    "Site",
    "Transport",
    "population",
    "run",
    "site_from_file",
]
