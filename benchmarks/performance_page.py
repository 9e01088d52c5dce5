"""Writes the table of ``docs/performance.md`` between its two marks, from the results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from work import CASES, Work

MARK = "results"


def table(results: Path) -> str:
    """All results in one table, in Markdown."""
    rows = ["| case | ours, steps/s | against | ratio | range | bar | before it, s | peak, MB |"]
    rows += ["| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for file in sorted(results / f"{name}.json" for name in CASES):
        if file.exists():
            rows += _rows(json.loads(file.read_text()))
    return "\n".join(rows)


def figure(rate: float) -> str:
    """A rate as text."""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def _rows(result: dict[str, Any]) -> list[str]:
    ours, rows = result["systems"]["ours"], []
    unit = Work(**result["work"]).unit
    counted = "" if unit == "steps" else f" {unit}/s"
    for peer, ratio in result["ratios"].items():
        theirs = result["systems"][peer]
        met = "met" if ratio["median"] >= result["bars"][peer] else "missed"
        pair = [f"{sorted(s[key])[len(s[key]) // 2]:.0f}" for key in ("before", "peak_mb") for s in (ours, theirs)]
        rows.append(
            f"| {result['case']} | {figure(ours['median'])}{counted} | {peer}, {figure(theirs['median'])}{counted} | "
            f"{ratio['median']:.2f} | {ratio['least']:.2f} to {ratio['most']:.2f} | {result['bars'][peer]:g}, {met} | "
            f"{pair[0]} : {pair[1]} | {pair[2]} : {pair[3]} |"
        )
    for peer, bar in CASES[result["case"]].bars.items():
        if peer not in result["ratios"]:
            rows.append(
                f"| {result['case']} | {figure(ours['median'])}{counted} | {peer} | not yet run | | {bar:g} | | |"
            )
    if "roofline" in result:
        roof = result["roofline"]
        rows.append(f"| | | matrix products alone ({roof['rate'] / 1e9:.0f} GFLOP/s) | {roof['share']:.2f} | | | | |")
    return rows


def write_page(results: Path, page: Path) -> None:
    """The table of all results, on the page."""
    replace_between_marks(page, table(results))


def replace_between_marks(page: Path, text: str, mark: str = MARK) -> None:
    """Replace the text between two marks of the page."""
    begin, end = f"<!-- {mark} -->", f"<!-- end of {mark} -->"
    before, _, rest = page.read_text().partition(begin)
    _, _, after = rest.partition(end)
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}")


def text_between_marks(page: Path, mark: str = MARK) -> str:
    """The text between two marks of the page."""
    _, _, rest = page.read_text().partition(f"<!-- {mark} -->")
    return rest.partition(f"<!-- end of {mark} -->")[0].strip()
