"""HTML elements of a report: one self-contained file, no network, light and dark, screen and print.

The elements are macros of ``report.html.jinja``. Arguments are plain text and are escaped, except those that are named
as HTML: results of other elements, and SVG.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Iterable, Sequence
from typing import Any

from thespis.evaluation.figure_style import PALETTE

_MIN_BAR_SHARE = 0.005  # smaller shares are left out of a bar


@functools.cache
def _macros() -> Any:
    import jinja2

    loader = jinja2.PackageLoader("thespis.evaluation", ".")
    env = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    return env.get_template("report.html.jinja").module


def section(title: str, *parts: str) -> str:
    """A section with a heading and HTML ``parts``; empty if all of them are."""
    body = "".join(parts)
    return str(_macros().section(title, body)) if body else ""


def heading(text: str, level: int = 1) -> str:
    """A heading of the page (level 1) or of a part of it."""
    return str(_macros().heading(text, level))


def paragraph(text: str, css_class: str = "") -> str:
    """A paragraph; empty for empty text."""
    return str(_macros().paragraph(text, css_class)) if text else ""


def code_block(text: str) -> str:
    """Text in a fixed-width font, with its line breaks."""
    return str(_macros().code_block(text))


def footer(text: str) -> str:
    """The last line of a page."""
    return str(_macros().footer(text))


def box(css_class: str, *parts: str) -> str:
    """HTML ``parts`` in a ``div`` of a class of the style sheet."""
    return str(_macros().box(css_class, parts))


def figure(*svgs: str, note: str = "", css_class: str = "") -> str:
    """SVGs with a caption below. Of two, the first is for wide windows, the second for phones."""
    return str(_macros().figure(svgs, note, css_class))


def switch(name: str, panes: Sequence[tuple[str, str]]) -> str:
    """Labelled HTML panes of which one is visible, chosen by the reader without JavaScript; in print, all are.

    ``name`` must occur once in a page.
    """
    return str(_macros().switch(name, panes))


def animation(content: bytes, caption: str) -> str:
    """An animated WebP image inside the page, with a caption below."""
    return str(_macros().animation(base64.b64encode(content).decode(), caption))


def table(header: Sequence[str], rows: Iterable[Sequence[str]], numeric_columns: Iterable[int] = ()) -> str:
    """A table; the columns ``numeric_columns`` are aligned right in figures of equal width. Empty without rows."""
    rows = list(rows)
    return str(_macros().table(header, rows, set(numeric_columns))) if rows else ""


def definition_list(items: Iterable[tuple[str, object]], bold: Iterable[str] = ()) -> str:
    """Names and values in columns; those named in ``bold`` are bold."""
    items = list(items)
    return str(_macros().definition_list(items, set(bold))) if items else ""


def verdict_box(sentences: Sequence[str], css_class: str = "") -> str:
    """A highlighted box with one sentence per line; ``css_class`` is ``waiting`` for a run that is not finished."""
    return str(_macros().verdict_box(sentences, css_class))


def bullet_list(items: Iterable[str]) -> str:
    """A bulleted list; empty without items."""
    items = list(items)
    return str(_macros().bullet_list(items)) if items else ""


def stacked_bar(parts: Sequence[tuple[str, float, str]]) -> str:
    """A stacked bar of ``parts``, each a name, an amount, and the amount as text, in order.

    Shares that are too small to be visible are left out.
    """
    total = sum(amount for _, amount, _ in parts)
    visible = [part for part in parts if part[1] > _MIN_BAR_SHARE * total]
    return str(_macros().stacked_bar(visible, total)) if visible else ""


def conversation(title: str, turns: Iterable[tuple[str, str, str]]) -> str:
    """A dialogue: of each turn the observation, the response and the scores."""
    return str(_macros().conversation(title, list(turns)))


def document(title: str, body: str) -> str:
    """A complete page with an HTML ``body``."""
    return str(_macros().document(title, body, PALETTE))
