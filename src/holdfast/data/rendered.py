"""Pictures of characters, drawn with fonts: data that a server can make up itself."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.data.bundled import train_and_test
from holdfast.data.checks import check_counts, is_number
from holdfast.data.dataset import Dataset
from holdfast.data.images import EMNIST_SCALE, as_floats
from holdfast.errors import HoldfastError, explain_arguments

# EMNIST's balanced classes in the order of their labels.
BALANCED = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabdefghnqrt"
_INCHES = 2
_OVERSAMPLING = 8


@explain_arguments
def rendered_characters(
    characters: str = BALANCED,
    fonts: Sequence[str] = ("STIXGeneral:italic",),
    angles: Sequence[float] = (-20.0, -10.0, 0.0, 10.0, 20.0),
    points: Sequence[float] = (100.0, 110.0, 120.0),
    size: int = 28,
    normalise: bool = False,
    test_share: float = 0.0,
    seed: int = 0,
) -> Dataset:
    """Characters drawn with fonts, white on black in [0, 1], as EMNIST's: FSL's made-up server data.

    As in the paper each character is drawn two inches high and wide in every font, angle and size and
    then reduced: 15 pictures of each. The paper's font is cursive and not named; among those that
    come with matplotlib an italic one is nearest, and any other that is installed can be given. A
    character's label is its place in `characters`, by default that of EMNIST's balanced split. Needs
    matplotlib, whose version decides about single pixels.

    Args:
        characters: what to draw, each once.
        fonts: families as matplotlib has them, with a style after a colon, or paths of font files.
        angles: in degrees, counter-clockwise.
        points: sizes of the font; 144 are the whole picture.
        size: pixels of height and width.
        normalise: as `hf.data.emnist` does.
        test_share: share of the pictures to test on; a server needs none.
        seed: draws those, and the order.

    Example:
        >>> import holdfast as hf
        >>> data = hf.data.rendered_characters("01", angles=[0, 10], points=[100])
        >>> data.train.x.shape, sorted(data.train.y.tolist())
        ((4, 28, 28, 1), [0, 0, 1, 1])

    Reference: Mai, La and Zhang, "Federated learning with server learning", 2022.
    """
    check_counts("rendered_characters", size=size)
    _check(characters, fonts, angles, points)
    draw = _Pen(size)
    pictures, labels = [], []
    for font in fonts:
        style = _properties(font, characters)
        for label, character in enumerate(characters):
            for angle in angles:
                pictures += [draw(character, style, angle, height) for height in points]
                labels += [label] * len(points)
    images = as_floats(np.stack(pictures)[..., None], EMNIST_SCALE if normalise else None)
    train, test = train_and_test(
        images, np.asarray(labels), test_share, seed, "rendered_characters"
    )
    return Dataset(train, test, classes=len(characters))


class _Pen:
    """Draws one character at a time, on the same sheet."""

    def __init__(self, size: int) -> None:
        try:
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure
        except ImportError:
            raise HoldfastError(
                "rendered_characters needs matplotlib, which is not installed; run "
                '`pip install "holdfast[figures]"`.'
            ) from None
        self.size = size
        sheet = Figure(figsize=(_INCHES, _INCHES), dpi=size * _OVERSAMPLING / _INCHES)
        self.canvas = FigureCanvasAgg(sheet)
        self.text = sheet.text(0.5, 0.5, "", ha="center", va="center")

    def __call__(self, character: str, style: Any, angle: float, points: float) -> np.ndarray:
        self.text.set_fontproperties(style)
        # A dollar sign begins no formula.
        self.text.set(text=character, rotation=angle, fontsize=points, parse_math=False)
        self.canvas.draw()
        grey = np.asarray(self.canvas.buffer_rgba())[..., 0].astype(np.float32)
        blocks = grey.reshape(self.size, _OVERSAMPLING, self.size, _OVERSAMPLING)
        return 255 - blocks.mean(axis=(1, 3))


def _properties(font: str, characters: str) -> Any:
    """A font that has all of the characters."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    try:
        path = Path(font) if Path(font).suffix in (".ttf", ".otf") else None
        style = FontProperties(font) if path is None else FontProperties(fname=path)
        found = get_font(findfont(style, fallback_to_default=False))
    except (ValueError, OSError):
        raise HoldfastError(
            f"rendered_characters: there is no font {font!r}; give a family that is installed, such as "
            f"'DejaVu Serif:italic', or the path of a .ttf file.",
            about=("fonts",),
        ) from None
    missing = [c for c in characters if ord(c) not in found.get_charmap()]
    if missing:
        raise HoldfastError(
            f"rendered_characters: the font {font!r} has no {missing[0]!r}; give another font.",
            about=("fonts",),
        )
    return style


def _check(
    characters: str, fonts: Sequence[str], angles: Sequence[float], points: Sequence[float]
) -> None:
    if not isinstance(characters, str) or not characters or characters.split() != [characters]:
        raise HoldfastError(
            f"rendered_characters: characters={characters!r}; give them as text without spaces.",
            about=("characters",),
        )
    if len(set(characters)) < len(characters):
        raise HoldfastError(
            f"rendered_characters: characters={characters!r}; give each once.",
            about=("characters",),
        )
    for name, given in (("fonts", fonts), ("angles", angles), ("points", points)):
        listed = isinstance(given, Sequence | np.ndarray) and not isinstance(given, str)
        what = "names" if name == "fonts" else "numbers"
        if not (listed and len(given) and all(_is(what, value) for value in given)):
            raise HoldfastError(
                f"rendered_characters: {name}={given!r}; give a list of {what}, at least one.",
                about=(name,),
            )
    if not all(0 < height < 1000 for height in points):
        raise HoldfastError(
            f"rendered_characters: points={points!r}; give sizes above 0, such as 100.",
            about=("points",),
        )


def _is(what: str, value: Any) -> bool:
    if what == "names":
        return isinstance(value, str)
    return is_number(value) and math.isfinite(value)
