"""What models of images have in common: the inputs they take, and random changes of them."""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from holdfast.errors import HoldfastError, explain_arguments, first_wrong
from holdfast.models.constructor import rebuildable
from holdfast.models.model import Model, classifier
from holdfast.trees import Tree


def pixels(x: jax.Array) -> jax.Array:
    """Images as numbers to compute with: whole numbers 0..255 become 0..1, others stay."""
    return x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(jnp.float32) / 255


@functools.lru_cache(maxsize=64)
def image_classifier(module: nn.Module, classes: int, smallest: int) -> Model:
    """`classifier` for images of at least `smallest` pixels a side, which it checks."""
    model = classifier(module, classes)

    def check(examples: Tree) -> None:
        check_images(examples.x, type(module).__name__, smallest)
        if model.check is not None:
            model.check(examples)

    return dataclasses.replace(model, check=check)


def check_images(x: np.ndarray, owner: str, smallest: int) -> None:
    """Refuse what is not (examples, height, width, channels)."""
    if x.ndim != 4:
        raise HoldfastError(
            f"x: its shape is {x.shape} but {owner} takes images of shape (examples, height, width, "
            f"channels); reshape the data, such as x.reshape(-1, 28, 28, 1).",
            about=("data",),
        )
    if min(x.shape[1:3]) < smallest:
        raise HoldfastError(
            f"x: its shape is {x.shape} but {owner} takes images (examples, height, width, channels) "
            f"of at least {smallest} x {smallest} pixels; enlarge them, or move channels last.",
            about=("data",),
        )


@explain_arguments
@rebuildable
def augmented(
    model: Model,
    flip: float = 0.5,
    crop: int = 4,
    crop_probability: float = 0.5,
    rotate: float = 0.0,
) -> Model:
    """The model trained on images changed at random; evaluation sees them as they are.

    Each image is turned by an angle, mirrored with one probability and with another moved by up to
    `crop` pixels each way, zeros coming in at the border. The random numbers come from the key of the
    loss, so a run is as reproducible as any. The defaults are those of FedDyn's code on CIFAR; FedPVR
    crops always, `crop_probability=1`.

    Args:
        model: any model of images (examples, height, width, channels).
        flip: probability of mirroring left and right.
        crop: largest move, in pixels.
        crop_probability: probability of moving.
        rotate: largest angle in degrees, drawn uniformly either way; pixels between others are
            interpolated.

    Example:
        >>> import holdfast as hf
        >>> import jax
        >>> import numpy as np
        >>> # What this model loses on an image is its pixel at the top left.
        >>> model = hf.Model(lambda key, examples: (), lambda params, batch: batch.x[:, 0, 0, 0])
        >>> image = hf.Examples(np.array([1.0, 2.0, 3.0, 4.0]).reshape(1, 2, 2, 1), np.zeros(1))
        >>> mirrored = hf.models.augmented(model, flip=1.0, crop=0)
        >>> for changed in (model, mirrored):
        ...     print(jax.jit(changed.losses)((), image, jax.random.key(0)))
        [1.]
        [2.]

    Reference: Acar et al., "Federated learning based on dynamic regularization", ICLR 2021.
    """
    wrong = first_wrong(
        flip=0 <= flip <= 1,
        crop=crop >= 0,
        crop_probability=0 <= crop_probability <= 1,
        rotate=0 <= rotate <= 180,
    )
    if wrong:
        raise HoldfastError(
            f"augmented: flip={flip}, crop={crop}, crop_probability={crop_probability}, "
            f"rotate={rotate}; give probabilities in 0..1, a whole number of pixels of at least 0 and "
            f"an angle of 0 to 180 degrees.",
            about=wrong,
        )
    return _augmented(model, Change(float(flip), crop, float(crop_probability), float(rotate)))


@dataclasses.dataclass(frozen=True)
class Change:
    """How images are changed at random; what each means is said by `augmented`."""

    flip: float = 0.5
    crop: int = 4
    crop_probability: float = 0.5
    rotate: float = 0.0


@functools.lru_cache(maxsize=64)
def _augmented(model: Model, by: Change) -> Model:
    def loss(params: Tree, batch: Tree, key: jax.Array | None = None) -> jax.Array:
        if key is None:
            return model.loss(params, batch)
        change_key, loss_key = jax.random.split(key)
        changed = change(batch.x, change_key, by)
        return model.loss(params, batch._replace(x=changed), loss_key)

    def check(examples: Tree) -> None:
        check_images(examples.x, "augmented", 1)
        if model.check is not None:
            model.check(examples)

    settings = ", ".join(f"{name}={value}" for name, value in dataclasses.asdict(by).items())
    name = f"augmented({model.name}, {settings})"
    return dataclasses.replace(model, loss=loss, metrics=model.measure, check=check, name=name)


def change(x: jax.Array, key: jax.Array, by: Change) -> jax.Array:
    """Images turned, mirrored and moved at random, each on its own."""
    flip_key, crop_key, move_key = jax.random.split(key, 3)
    examples, height, width, channels = x.shape
    if by.rotate:
        angles = jax.random.uniform(
            jax.random.fold_in(key, 3), (examples,), jnp.float32, -by.rotate, by.rotate
        )
        x = jax.vmap(turned)(x, jnp.deg2rad(angles))
    flipped = jax.random.bernoulli(flip_key, by.flip, (examples,))
    x = jnp.where(flipped[:, None, None, None], x[:, :, ::-1], x)
    moved = jax.random.bernoulli(crop_key, by.crop_probability, (examples,))
    corners = jax.random.randint(move_key, (examples, 2), 0, 2 * by.crop + 1)
    corners = jnp.where(moved[:, None], corners, by.crop)
    wide = jnp.pad(x, ((0, 0), (by.crop, by.crop), (by.crop, by.crop), (0, 0)))

    def cut(image: jax.Array, corner: jax.Array) -> jax.Array:
        start = (corner[0], corner[1], jnp.zeros((), corner.dtype))
        return lax.dynamic_slice(image, start, (height, width, channels))

    return jax.vmap(cut)(wide, corners)


def turned(image: jax.Array, angle: jax.Array) -> jax.Array:
    """One image turned about its centre, counter-clockwise by an angle in radians.

    Each pixel is interpolated between the four where it came from; outside of the image is zero.

    Example:
        >>> import jax.numpy as jnp
        >>> from holdfast.models.images import turned
        >>> image = jnp.array([[1.0, 2.0], [3.0, 4.0]])[:, :, None]
        >>> turned(image, jnp.float32(jnp.pi / 2))[:, :, 0].round(4).tolist()
        [[2.0, 4.0], [1.0, 3.0]]
    """
    height, width, _ = image.shape
    rows = jnp.arange(height, dtype=jnp.float32)[:, None] - (height - 1) / 2
    columns = jnp.arange(width, dtype=jnp.float32)[None] - (width - 1) / 2
    cosine, sine = jnp.cos(angle), jnp.sin(angle)
    from_row = cosine * rows + sine * columns + (height - 1) / 2
    from_column = cosine * columns - sine * rows + (width - 1) / 2
    # A rounding error beyond the border would be darkness.
    top, left = jnp.floor(from_row + 1e-4), jnp.floor(from_column + 1e-4)
    down = jnp.maximum(from_row - top, 0)[..., None]
    right = jnp.maximum(from_column - left, 0)[..., None]
    values = pixels(image)

    def at(row: jax.Array, column: jax.Array) -> jax.Array:
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        found = values[
            jnp.clip(row, 0, height - 1).astype(jnp.int32),
            jnp.clip(column, 0, width - 1).astype(jnp.int32),
        ]
        return jnp.where(inside[..., None], found, 0)

    down, right = down.astype(values.dtype), right.astype(values.dtype)
    above = (1 - right) * at(top, left) + right * at(top, left + 1)
    below = (1 - right) * at(top + 1, left) + right * at(top + 1, left + 1)
    return (1 - down) * above + down * below
