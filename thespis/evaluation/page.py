"""Pieces of the HTML page that a report is: one file, no network, light and dark, screen and paper."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from thespis.evaluation.style import PALETTE

_VISIBLE = 0.005  # the smallest share that a bar shows


def escape(text: object) -> str:
    """Text as HTML text."""
    return html.escape(str(text))


def section(title: str, *parts: str) -> str:
    """A headed section; empty if all of its parts are."""
    body = "".join(parts)
    return f"<section><h2>{escape(title)}</h2>{body}</section>" if body else ""


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph of plain text; nothing for no text."""
    return f'<p class="{kind}">{escape(text)}</p>' if text else ""


def picture(*svgs: str, note: str = "", kind: str = "") -> str:
    """Inline pictures, a line of text below. Of two, the first is for wide windows, the other for phones."""
    wide_and_narrow = (
        "".join(f'<div class="{name}">{svg}</div>' for name, svg in zip(("wide", "narrow"), svgs, strict=False))
        if len(svgs) == 2
        else svgs[0]
    )
    caption = f"<figcaption>{escape(note)}</figcaption>" if note else ""
    return f'<figure class="{kind}">{wide_and_narrow}{caption}</figure>'


def table(header: Sequence[str], rows: Iterable[Sequence[str]], numeric: Iterable[int] = ()) -> str:
    """A table of plain text; the columns ``numeric`` are set flush right in figures of equal width."""
    right = set(numeric)

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f'<{tag} class="n">{escape(cell)}</{tag}>' if i in right else f"<{tag}>{escape(cell)}</{tag}>"
            for i, cell in enumerate(row)
        )

    head = f"<thead><tr>{cells('th', header)}</tr></thead>" if any(header) else ""
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<div class="scroll"><table>{head}<tbody>{body}</tbody></table></div>' if body else ""


def pairs(items: Iterable[tuple[str, object]], strong: Iterable[str] = ()) -> str:
    """Names and values in columns; those named in ``strong`` stand out."""
    marked = set(strong)
    rows = "".join(
        f'<div class="{"strong" if name in marked else ""}">'
        f"<dt>{_breakable(name)}</dt><dd>{_breakable(value)}</dd></div>"
        for name, value in items
    )
    return f"<dl>{rows}</dl>" if rows else ""


def verdict(sentences: Sequence[str], kind: str = "") -> str:
    """What it all comes to, a line each, set off from the rest; ``kind`` is ``waiting`` for what is not done."""
    return f'<p class="verdict {kind}">{"<br>".join(escape(sentence) for sentence in sentences)}</p>'


def listing(items: Iterable[str]) -> str:
    """A bulleted list of plain text."""
    rows = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f"<ul>{rows}</ul>" if rows else ""


def bar(parts: Sequence[tuple[str, float, str]]) -> str:
    """A bar divided in proportion: name, amount and the amount in words of each part, in order.

    Shares that are too small to be seen are left out.
    """
    total = sum(amount for _, amount, _ in parts)
    shown = [part for part in parts if part[1] > _VISIBLE * total]
    if not shown:
        return ""
    pieces = "".join(
        f'<span style="flex:{amount / total:.4f};background:var(--c{i % 8})"></span>'
        for i, (_, amount, _) in enumerate(shown)
    )
    key = "".join(
        f'<li><i style="background:var(--c{i % 8})"></i>{escape(name)} <b>{escape(words)}</b> '
        f"{100 * amount / total:.0f}%</li>"
        for i, (name, amount, words) in enumerate(shown)
    )
    return f'<div class="bar" role="img" aria-label="timing split">{pieces}</div><ul class="key">{key}</ul>'


def document(title: str, body: str) -> str:
    """The whole page."""
    light = "".join(f"--{name}:{pair[0]};" for name, pair in PALETTE.items())
    dark = "".join(f"--{name}:{pair[1]};" for name, pair in PALETTE.items())
    variables = (
        f":root{{{light}--page:#fff;--card:#f6f8fa}}"
        f"@media screen and (prefers-color-scheme:dark){{:root{{{dark}--page:#12171d;--card:#1a2129}}}}"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>\n{variables}\n{_CSS}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _breakable(text: object) -> str:
    """Text that may be broken after a dot or an underscore, where a long name has no spaces."""
    return escape(text).replace(".", ".<wbr>").replace("_", "_<wbr>")


_CSS = """\
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);
 font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;
 -webkit-text-size-adjust:100%;overflow-wrap:anywhere}
main{max-width:920px;margin:0 auto;padding:40px 24px 64px}
h1{font-size:30px;line-height:1.2;margin:0 0 6px;letter-spacing:-.01em}
h2{font-size:19px;line-height:1.3;margin:0 0 10px}
h3{font-size:16px;margin:20px 0 6px}
section{margin-top:40px}
p{margin:0 0 12px;max-width:70ch}
.sub,figcaption,.note{color:var(--muted);font-size:14px}
.sub{margin:0;max-width:none}
.verdict{border-left:4px solid var(--c0);background:var(--card);padding:14px 18px;margin:22px 0 0;
 font-size:17px;max-width:none;border-radius:0 6px 6px 0}
.verdict.waiting{border-color:var(--c1)}
.flag{border-left:4px solid var(--c4);background:var(--card);padding:10px 16px;border-radius:0 6px 6px 0;
 max-width:none}
figure{margin:0 0 8px}
figure svg{display:block;width:100%;height:auto}
figure svg *{stroke-linejoin:round;stroke-linecap:butt}
figure svg text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
figcaption{margin-top:4px;max-width:95ch}
.narrow{display:none}
.half{max-width:520px}
.beside{display:grid;grid-template-columns:minmax(0,3fr) minmax(0,2fr);gap:28px;align-items:center}
.beside dl{columns:1}
.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(250px,1fr));gap:18px 22px}
.grid figcaption{margin:0 0 2px;color:var(--ink);font-weight:600;font-size:13.5px}
.grid figure{display:flex;flex-direction:column-reverse;justify-content:flex-end;margin:0}
.scroll{overflow-x:auto;margin:0 0 12px}
table{border-collapse:collapse;width:100%;font-size:15px;overflow-wrap:normal}
th,td{text-align:left;padding:7px 14px 7px 0;border-bottom:1px solid var(--rule);vertical-align:top}
th{font-weight:600;color:var(--muted);font-size:13px}
td:first-child{font-weight:600;white-space:nowrap}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.n+:not(.n){padding-left:26px}
th.n,td.n{padding-right:0;padding-left:14px}
dl{columns:2;column-gap:32px;margin:0 0 12px;font-size:14.5px}
dl div{display:flex;justify-content:space-between;gap:16px;padding:4px 0;border-bottom:1px solid var(--rule);
 break-inside:avoid}
dt{color:var(--muted)}
dd{margin:0;text-align:right;font-variant-numeric:tabular-nums}
.strong dt,.strong dd{color:var(--ink);font-weight:650}
ul{margin:0 0 12px;padding-left:20px}
li{margin:3px 0}
.bar{display:flex;height:22px;gap:2px;border-radius:4px;overflow:hidden;margin:4px 0 10px}
.bar span{min-width:2px}
.bar,.key i{print-color-adjust:exact;-webkit-print-color-adjust:exact}
.key{list-style:none;padding:0;display:flex;flex-wrap:wrap;gap:4px 22px;font-size:14.5px}
.key i{display:inline-block;width:11px;height:11px;border-radius:2px;margin-right:7px}
.talks{display:grid;grid-template-columns:repeat(3,minmax(0,1fr));gap:4px 26px;margin:0 0 26px;
 font-size:14.5px;line-height:1.45}
.talks h3{border-bottom:1px solid var(--rule);padding-bottom:5px;margin:8px 0 10px;font-size:14px}
.talks p{white-space:pre-wrap}
.heard{margin:0;color:var(--muted)}
.said{margin:1px 0 0;padding-left:10px;border-left:3px solid var(--c0);font-weight:600}
.worth{margin:2px 0 12px 13px;color:var(--muted);font-size:12.5px;font-variant-numeric:tabular-nums}
pre{background:var(--card);padding:12px 16px;border-radius:6px;white-space:pre-wrap;margin:0 0 12px;
 font:14px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace}
.run{border-top:2px solid var(--rule);margin-top:56px;padding-top:36px}
.run h1{font-size:24px}
footer{margin-top:56px;color:var(--muted);font-size:13px}
@media(max-width:640px){
 main{padding:24px 16px 48px}
 h1{font-size:24px}
 dl{columns:1}
 .beside,.talks{grid-template-columns:minmax(0,1fr)}
 td:first-child{white-space:normal;overflow-wrap:anywhere;min-width:8em}
 .wide{display:none}
 .narrow{display:block}
 .grid figure svg{max-width:310px}
}
@media print{
 main{max-width:none;padding:0}
 body{font-size:12px}
 h1{font-size:22px}
 h2{font-size:15px}
 h2,h3{break-after:avoid}
 section{margin-top:24px}
 figure,tr,.beside{break-inside:avoid}
 .verdict{font-size:13px}
 table,dl,.key,pre,.talks{font-size:11px}
 .worth{font-size:10px}
 .scroll{overflow:visible}
 td:first-child{white-space:normal;overflow-wrap:anywhere}
 .run{break-before:page;border:0;margin:0;padding:0}
}
"""
