"""The look of every picture: colours, type, and the way into an HTML page.

The same data gives the same bytes. A figure is drawn in the light colours of :data:`PALETTE`; :func:`inline`
makes it refer to the page's CSS variables instead, so that one picture serves light and dark.
"""

from __future__ import annotations

import contextlib
import html
import io
import re
import warnings
from collections.abc import Iterator
from typing import Any

PALETTE = {
    "ink": ("#1c2733", "#e6ebf0"),
    "muted": ("#66727f", "#98a4b0"),
    "rule": ("#e3e8ed", "#313c47"),
    "c0": ("#1f6fd6", "#6cabff"),
    "c1": ("#d9580d", "#ff9c5b"),
    "c2": ("#24894a", "#63d08a"),
    "c3": ("#9a3fb8", "#dd94f2"),
    "c4": ("#c7283c", "#ff8a93"),
    "c5": ("#0c8291", "#5ed4e3"),
    "c6": ("#8a6a0a", "#e2bf54"),
    "c7": ("#5a52cf", "#a9a4ff"),
}
"""Names of colours, each in light and in dark; the variable of the page is ``--`` and the name."""

LINES = [light for name, (light, _) in PALETTE.items() if name.startswith("c")]
"""Colours of groups, in their order."""

INK, MUTED, RULE = (PALETTE[name][0] for name in ("ink", "muted", "rule"))

_STYLE: Any = {
    "svg.hashsalt": "thespis",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["Helvetica Neue", "Arial", "Liberation Sans", "DejaVu Sans"],
    "font.size": 9,
    "text.color": INK,
    "text.parse_math": False,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.limits": (-4, 5),
    "axes.formatter.use_mathtext": False,
    "axes.unicode_minus": True,
    "grid.color": RULE,
    "grid.linewidth": 0.7,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.solid_capstyle": "round",
    "lines.solid_joinstyle": "round",
}


@contextlib.contextmanager
def figure(size: tuple[float, float]) -> Iterator[Any]:
    """An empty figure of ``size`` inches in the house's style, which holds inside the block only."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # the reader's browser has the glyph
        yield Figure(figsize=size, layout="constrained")


def render(figure: Any, kind: str) -> bytes:
    """A finished figure as bytes of ``kind``, ``svg`` or ``png``. Raises ``ValueError`` for another kind."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    out = io.BytesIO()
    if kind == "svg":
        FigureCanvasSVG(figure).print_svg(out, metadata={"Date": None, "Creator": None})
    elif kind == "png":
        FigureCanvasAgg(figure)
        figure.savefig(out, format="png", dpi=180, metadata={"Software": None})
    else:
        raise ValueError(f"unknown kind of picture {kind!r}: it is svg or png")
    return out.getvalue()


def inline(svg: bytes, title: str) -> str:
    """An SVG of this module as an element of an HTML page, its colours the page's variables."""
    text = svg.decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r' id="(?!p[0-9a-f]{10}|m[0-9a-f]{10}|C\d)[^"]*"', "", text)
    text = text.replace("fill: #ffffff", "fill: none")  # the page's own background
    for name, (light, _) in PALETTE.items():
        text = text.replace(light, f"var(--{name})")
    text = re.sub(r"font: [^;\"]*?(\d+(\.\d+)?)px [^;\"]*", r"font-size: \1px", text)
    text = re.sub(r"<[^>]*>", lambda tag: re.sub(r"-?\d+\.\d{3,}", _rounded, tag[0]), text)  # not what the labels say
    attributes = f'role="img" aria-label="{html.escape(title)}"'
    text = re.sub(r'^<svg [^>]*?(viewBox="[^"]*")[^>]*>', rf"<svg \1 {attributes}>", text, count=1)
    return re.sub(r"\s*\n\s*", "\n", text).strip()


def _rounded(number: re.Match[str]) -> str:
    """A coordinate to a hundredth of a point."""
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")
