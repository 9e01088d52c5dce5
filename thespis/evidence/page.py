"""The pages of papers, one for all and one for each, written from their declarations and their evidence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from thespis.core import disk
from thespis.core.errors import UserError
from thespis.evaluation import words
from thespis.evidence import record
from thespis.evidence.paper import Paper, as_read_now, digest

_HEAD = """# Papers

Every paper below is implemented here, and its claim was put to a test that you can run again:

- `thespis papers` lists them; `thespis papers ID` tells one's parts and how to use them;
- `thespis reproduce ID` trains the arms of its miniature and prints the verdict, whatever it is.

*Shown*: every inequality holds with its whole interval. *Contradicted*: one holds the other way round. *Not shown*:
anything else. The inequalities, the budget and the rule for adding seeds are fixed in the paper's file before the
first run; no verdict is edited. A miniature is small: it can show that an effect is there, seldom how large it was in
the paper. This page, and one for each paper, is written by `thespis papers --write docs`.
"""


def state(paper: Paper, found: dict[str, Any] | None) -> str:
    """The verdict of a miniature's record; ``none yet`` without one, ``outdated`` if the declaration has changed."""
    if found is None:
        return "none yet"
    try:
        same = digest(as_read_now(found["declaration"])) == paper.miniature.digest
    except UserError:
        same = False
    return found["verdict"] if same else "outdated"


def write(papers: Sequence[Paper], evidence: Path, folder: Path) -> None:
    """Write ``papers.md`` and ``papers/ID.md`` into ``folder``, whole files one after another."""
    for name, text in pages(papers, evidence).items():
        file = folder / name
        with disk.one_line("the pages of papers", file):
            file.parent.mkdir(parents=True, exist_ok=True)
            with disk.replacing(file) as handle:
                handle.write(text.encode())


def pages(papers: Sequence[Paper], evidence: Path) -> dict[str, str]:
    """Every page in Markdown, by its name in the folder of documents."""
    found = {paper.id: record.read(evidence, paper.id) for paper in papers}
    rows = ["| id | paper | verdict |", "| --- | --- | --- |"]
    rows += [f"| [{p.id}](papers/{p.id}.md) | {_cited(p)} | {state(p, found[p.id])} |" for p in papers]
    index = {"papers.md": "\n".join([_HEAD, *rows, ""])}
    return index | {f"papers/{p.id}.md": _page(p, found[p.id]) for p in papers}


def _cited(paper: Paper) -> str:
    cited = paper.citation
    return f"{cited.authors} {cited.year}: {cited.title}"


def _page(paper: Paper, found: dict[str, Any] | None) -> str:
    parts = ", ".join(f"`{part}`" for part in paper.parts)
    lines = [f"# {paper.id}", "", f"{_cited(paper)}, {paper.citation.id}. {paper.does}", ""]
    lines += [f"- Claim: {paper.claim}", f"- Parts: {parts}", f"- Use: `{paper.use}`", ""]
    trial = paper.miniature
    own = "".join(f" ({arm.name}: {arm.steps:,})" for arm in trial.arms if arm.steps)
    lines += [
        f"Miniature: {', '.join(trial.envs)}, {trial.steps:,} steps per seed{own}, "
        f"at most {trial.looks * trial.batch} seeds per arm. Verdict: **{state(paper, found)}**.",
        "",
    ]
    lines += _findings(found) if found else [f"- {claim.sentence}" for claim in trial.claims]
    lines += ["", paper.remarks] if paper.remarks else []
    lines += ["", f"![scores of every arm](../../evidence/{paper.id}.svg)"] if found else []
    return "\n".join([*lines, ""])


def _findings(found: dict[str, Any]) -> list[str]:
    rows = ["| inequality | verdict | estimate | interval |", "| --- | --- | --- | --- |"]
    for finding in found["findings"]:
        span = words.interval(finding["interval"]) if finding["interval"] else "exact"
        rows.append(f"| {finding['claim']} | {finding['verdict']} | {finding['estimate']:.3g} | {span} |")
    told = f"{len(found['seeds'])} seeds per arm, {found['minutes']:.1f} minutes"
    return [*rows, "", f"{told}, intervals of {found['level']:.1%}."]
