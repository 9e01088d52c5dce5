"""Style of plots: colours, fonts, and conversion of figures to inline SVG for HTML pages.

The same data gives the same bytes. A figure is drawn in the light colours of :data:`PALETTE`; :func:`inline_svg`
replaces them by the page's CSS variables, so that one SVG serves light and dark mode.
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
"""Colours by name, each for light and dark mode; the CSS variable is ``--`` and the name."""

SERIES_COLORS = [light for name, (light, _) in PALETTE.items() if name.startswith("c")]
"""Colours of series, in order."""

TEXT_COLOR, MUTED_COLOR, GRID_COLOR = (PALETTE[name][0] for name in ("ink", "muted", "rule"))

_RC_PARAMS: Any = {
    "svg.hashsalt": "thespis",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["Helvetica Neue", "Arial", "Liberation Sans", "DejaVu Sans"],
    "font.size": 9,
    "text.color": TEXT_COLOR,
    "text.parse_math": False,
    "axes.edgecolor": MUTED_COLOR,
    "axes.labelcolor": TEXT_COLOR,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.limits": (-4, 5),
    "axes.formatter.use_mathtext": False,
    "axes.unicode_minus": True,
    "grid.color": GRID_COLOR,
    "grid.linewidth": 0.7,
    "xtick.color": MUTED_COLOR,
    "ytick.color": MUTED_COLOR,
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
def styled_figure(size: tuple[float, float]) -> Iterator[Any]:
    """An empty figure of ``size`` inches; the style of this module applies inside the ``with`` block only."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_RC_PARAMS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # the reader's browser has the glyph
        yield Figure(figsize=size, layout="constrained")


def render_figure(figure: Any, image_format: str) -> bytes:
    """A finished figure as bytes of ``image_format``, ``svg`` or ``png``; raises ``ValueError`` for another one."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    out = io.BytesIO()
    if image_format == "svg":
        FigureCanvasSVG(figure).print_svg(out, metadata={"Date": None, "Creator": None})
    elif image_format == "png":
        FigureCanvasAgg(figure)
        figure.savefig(out, format="png", dpi=180, metadata={"Software": None})
    else:
        raise ValueError(f"unknown image format {image_format!r}: use svg or png")
    return out.getvalue()


def inline_svg(svg: bytes, title: str) -> str:
    """An SVG from :func:`render_figure` as an HTML element, with its colours as CSS variables of the page."""
    text = svg.decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r' id="(?!p[0-9a-f]{10}|m[0-9a-f]{10}|C\d)[^"]*"', "", text)
    text = text.replace("fill: #ffffff", "fill: none")  # the page's own background
    for name, (light, _) in PALETTE.items():
        text = text.replace(light, f"var(--{name})")
    text = re.sub(r"font: [^;\"]*?(\d+(\.\d+)?)px [^;\"]*", r"font-size: \1px", text)
    text = re.sub(
        r"<[^>]*>", lambda tag: re.sub(r"-?\d+\.\d{3,}", _round_coordinate, tag[0]), text
    )  # coordinates only, not text
    attributes = f'role="img" aria-label="{html.escape(title)}"'
    text = re.sub(r'^<svg [^>]*?(viewBox="[^"]*")[^>]*>', rf"<svg \1 {attributes}>", text, count=1)
    return re.sub(r"\s*\n\s*", "\n", text).strip()


def _round_coordinate(number: re.Match[str]) -> str:
    """Round a coordinate to a hundredth of a point."""
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")
