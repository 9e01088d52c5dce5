"""Documentation pages of papers, an index and one page each, generated from declarations and evidence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from thespis.core.errors import UserError
from thespis.evaluation import formatting
from thespis.evidence import record
from thespis.evidence.paper import Paper, digest, upgrade_declaration
from thespis.runtime import disk

_INDEX_HEADER = """# Papers

Every paper below is implemented here, and its claim was tested in a trial that you can repeat:

- `thespis papers` lists all papers; `thespis papers ID` shows the parts of one and how to use them;
- `thespis reproduce ID` trains the arms of its miniature, a small version of the experiment, and prints the verdict.

*Shown*: every inequality holds over its whole confidence interval. *Contradicted*: the opposite of at least one does.
*Not shown*: anything else. The inequalities, the budget and the rule for adding seeds are fixed in the paper's file
before the first run, and no verdict is edited. Where arms are compared, the estimate is the probability that a seed of
the first arm does better; 0.5 is no difference. A miniature can show that an effect exists, but seldom how large it is
in the paper. `thespis papers --write docs` generates this page and the page of each paper.
"""


def verdict_status(paper: Paper, record: dict[str, Any] | None) -> str:
    """The verdict of a miniature's record; ``none yet`` without one, ``outdated`` if the declaration has changed."""
    if record is None:
        return "none yet"
    try:
        is_current = digest(upgrade_declaration(record["declaration"])) == paper.miniature.digest
    except UserError:
        is_current = False
    return record["verdict"] if is_current else "outdated"


def write_pages(papers: Sequence[Paper], evidence: Path, directory: Path) -> None:
    """Write ``papers.md`` and ``papers/ID.md`` into ``directory``."""
    for name, text in render_pages(papers, evidence).items():
        file = directory / name
        with disk.as_user_error("the pages of papers", file):
            file.parent.mkdir(parents=True, exist_ok=True)
            with disk.atomic_write(file) as handle:
                handle.write(text.encode())


def render_pages(papers: Sequence[Paper], evidence: Path) -> dict[str, str]:
    """Every page in Markdown, by its path below the docs directory."""
    records = {paper.id: record.read_record(evidence, paper.id) for paper in papers}
    rows = ["| id | paper | verdict |", "| --- | --- | --- |"]
    rows += [
        f"| [{paper.id}](papers/{paper.id}.md) | {_citation_text(paper)} | {verdict_status(paper, records[paper.id])} |"
        for paper in papers
    ]
    index = {"papers.md": "\n".join([_INDEX_HEADER, *rows, ""])}
    return index | {f"papers/{paper.id}.md": _paper_page(paper, records[paper.id]) for paper in papers}


def _citation_text(paper: Paper) -> str:
    citation = paper.citation
    return f"{citation.authors} {citation.year}: {citation.title}"


def _paper_page(paper: Paper, record: dict[str, Any] | None) -> str:
    parts = ", ".join(f"`{part}`" for part in paper.parts)
    lines = [f"# {paper.id}", "", f"{_citation_text(paper)}, {paper.citation.id}. {paper.summary}", ""]
    lines += [f"- Claim: {paper.claim}", f"- Parts: {parts}", f"- Use: `{paper.command}`", ""]
    trial = paper.miniature
    arm_steps = "".join(f" ({arm.name}: {arm.steps:,})" for arm in trial.arms if arm.steps)
    lines += [
        f"Miniature: {', '.join(trial.envs)}, {trial.steps:,} steps per seed{arm_steps}, "
        f"at most {trial.max_looks * trial.seeds_per_look} seeds per arm. Verdict: "
        f"**{verdict_status(paper, record)}**.",
        "",
    ]
    lines += _findings_table(record) if record else [f"- {claim.sentence}" for claim in trial.claims]
    lines += ["", paper.remarks] if paper.remarks else []
    lines += ["", f"![scores of every arm](../../evidence/{paper.id}.svg)"] if record else []
    return "\n".join([*lines, ""])


def _findings_table(record: dict[str, Any]) -> list[str]:
    rows = ["| inequality | verdict | estimate | interval |", "| --- | --- | --- | --- |"]
    for finding in record["findings"]:
        interval = formatting.format_interval(finding["interval"]) if finding["interval"] else "exact"
        rows.append(f"| {finding['claim']} | {finding['verdict']} | {finding['estimate']:.3g} | {interval} |")
    counts = f"{len(record['seeds'])} seeds per arm, {record['minutes']:.1f} minutes"
    return [*rows, "", f"{counts}, {record['level']:.1%} confidence intervals."]
