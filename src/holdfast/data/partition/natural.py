"""The population as it came."""

from holdfast.data.clients import Clients
from holdfast.data.dataset import Dataset
from holdfast.errors import HoldfastError, explain_arguments


@explain_arguments
def natural(data: Dataset) -> Clients:
    """Every owner is a client, with the examples that are its own: a role, a writer, a hospital.

    Args:
        data: a data set that says whose its examples are (`Dataset.owners`).

    Example:
        >>> import holdfast as hf
        >>> data = hf.data.synthetic_logistic("type3", clients=5, seed=1)
        >>> hf.data.partition.natural(data).sizes.tolist()
        [282, 454, 278, 54, 494]
    """
    if not isinstance(data, Dataset):
        raise HoldfastError(
            f"partition.natural: data is a {type(data).__name__}; give the hf.data.Dataset that a "
            f"loader returns, not its training examples alone.",
            about=("data",),
        )
    return data.natural()[0]
