"""PyTorch at the sites: a module takes the local steps, and every method of the library runs unchanged."""

from holdfast.torch.alike import like
from holdfast.torch.engine import Engine
from holdfast.torch.models import model, module
from holdfast.torch.sites import Site, examples, site

__all__ = ["Engine", "Site", "examples", "like", "model", "module", "site"]
