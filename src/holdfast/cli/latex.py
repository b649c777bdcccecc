"""Equations as a terminal can show them."""

import re

_SPELT_OUT = (
    (r"\\tfrac(\d)(\d)", r"\\frac{\1}{\2}"),
    (r"\\tfrac", r"\\frac"),
    (r"\\[bB]igg?[lr]?(?![a-z])", ""),
    (r"\\overline\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}", r"mean(\1)"),
    (r"\\arg\\min", "arg min "),
    (r"\\leftarrow", " ← "),
    (r"\\\|", "‖"),
    (r"\^2", "²"),
    (r"\\\\", "\n"),
)


_BRACED = r"\{((?:[^{}]|\{[^{}]*\})*)\}"


def _part(latex: str) -> str:
    """Half of a fraction, in parentheses if it is more than one term."""
    return f"({latex})" if re.search(r"[+\-]| \\?sum", latex) else latex


def readable(latex: str) -> str:
    """LaTeX as plain text, as far as letters go."""
    from pylatexenc.latex2text import LatexNodes2Text

    for pattern, plain in _SPELT_OUT:
        latex = re.sub(pattern, plain, latex)
    latex = re.sub(rf"\\frac{_BRACED}{_BRACED}", lambda m: f"{_part(m[1])}/{_part(m[2])}", latex)
    text = LatexNodes2Text(math_mode="text").latex_to_text(latex)
    return "\n".join(" ".join(line.split()) for line in text.splitlines())


def readable_inline(text: str) -> str:
    """Text with its $...$ made plain."""
    return re.sub(r"\$([^$]+)\$", lambda m: readable(m[1]), text)
