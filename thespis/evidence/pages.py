"""Documentation pages of papers, an index and one page each, generated from declarations and evidence."""

from __future__ import annotations

import collections
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from thespis.core.errors import UserError
from thespis.evaluation import formatting
from thespis.evidence import record
from thespis.evidence.bench import admission_status, read_admission, rival_shares
from thespis.evidence.benches.registry import bench_names, load_bench
from thespis.evidence.comparisons import Comparison
from thespis.evidence.paired_verdict import NOT_APPLICABLE
from thespis.evidence.paper import PairedTrial, Paper, digest, upgrade_declaration
from thespis.runtime import disk

_INDEX_HEADER = """# Papers

Every paper below is implemented here, and its claim was tested in a trial that you can repeat:

- `thespis papers` lists all papers; `thespis papers ID` shows the parts of one and how to use them;
- `thespis reproduce ID` trains the arms of its miniature, a small version of the experiment, and prints the verdict.

*Protocol 2*: seeds of two arms are compared pair by pair on a bench whose controls have passed. One headline is the
verdict: *shown* or *contradicted* by an exact test, *level* if the arms are practically equal, *undecided* if there
were too few pairs. Mechanisms and context are tabled beside it ([how](adding-a-paper.md)).

*Protocol 1*, an earlier one: every inequality had to hold over its whole confidence interval; *contradicted* if the
opposite of at least one does, *not shown* for anything else. Most of these trials could not have shown anything,
with so few seeds or in environments in which nothing differs: they are being repeated. The estimate is the
probability that a seed of the first arm does better; 0.5 is no difference.

Claims, budget and the rule for adding seeds are fixed in the paper's file before the first run, and no verdict is
edited. A miniature can show that an effect exists, but seldom how large it is in the paper. `thespis papers --write
docs` generates this page and the page of each paper.
"""

_BENCH_HEADER = """## Benches

Headroom is how far a bench's baseline has come from random play to the best known, symptom the size of what its
papers mend, each for every environment.

| bench | what it shows | status | headroom | symptom | papers |
| --- | --- | --- | --- | --- | --- |"""


def verdict_status(paper: Paper, record: dict[str, Any] | None, full: bool = False) -> str:
    """The verdict of a trial's record; ``none yet`` without one, ``outdated`` if the declaration has changed."""
    if record is None:
        return "none yet"
    try:
        is_current = digest(upgrade_declaration(record["declaration"])) == paper.trial(full).digest
    except UserError:
        is_current = False
    return record["verdict"] if is_current else "outdated"


def protocol_number(paper: Paper) -> int:
    """The protocol of a paper's trial: 1 or 2."""
    return 2 if isinstance(paper.miniature, PairedTrial) else 1


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
    rows = [*_verdict_counts(papers, records), "", "| id | paper | verdict | protocol |", "| --- | --- | --- | ---: |"]
    for paper in papers:
        verdict, protocol = verdict_status(paper, records[paper.id]), protocol_number(paper)
        rows.append(f"| [{paper.id}](papers/{paper.id}.md) | {_citation_text(paper)} | {verdict} | {protocol} |")
    index = {"papers.md": "\n".join([_INDEX_HEADER, *rows, "", *_bench_table(papers, evidence), ""])}
    return index | {f"papers/{paper.id}.md": _paper_page(paper, records[paper.id], evidence) for paper in papers}


def _verdict_counts(papers: Sequence[Paper], records: dict[str, dict[str, Any] | None]) -> list[str]:
    """The number of papers for each verdict and protocol, as the rows of a table."""
    counts = collections.Counter((protocol_number(paper), verdict_status(paper, records[paper.id])) for paper in papers)
    totals = collections.Counter(verdict for _, verdict in counts.elements())
    verdicts = sorted(totals, key=lambda verdict: (-totals[verdict], verdict))
    lines = ["| protocol | " + " | ".join(verdicts) + " |", "| --- |" + " ---: |" * len(verdicts)]
    for protocol in sorted({protocol for protocol, _ in counts}, reverse=True):
        lines.append(f"| {protocol} | " + " | ".join(str(counts[protocol, verdict]) for verdict in verdicts) + " |")
    return lines


def _bench_table(papers: Sequence[Paper], evidence: Path) -> list[str]:
    """The benches of protocol 2: what they show, how their controls came out, and which papers stand on them."""
    lines = [_BENCH_HEADER]
    for name in bench_names():
        bench, admission = load_bench(name), read_admission(evidence, name)
        values = {
            kind: ", ".join(
                check["value"] for check in (admission or {"checks": []})["checks"] if check["name"].startswith(kind)
            )
            for kind in ("headroom", "symptom")
        }
        trials = {paper.id: paper.miniature for paper in papers}
        on_it = [id for id, trial in trials.items() if isinstance(trial, PairedTrial) and trial.bench == bench.label]
        cells = (bench.label, bench.summary, admission_status(bench, admission), values["headroom"], values["symptom"])
        lines.append("| " + " | ".join((*cells, ", ".join(f"[{id}](papers/{id}.md)" for id in on_it))) + " |")
    return lines


def _citation_text(paper: Paper) -> str:
    citation = paper.citation
    return f"{citation.authors} {citation.year}: {citation.title}"


def _paper_page(paper: Paper, record: dict[str, Any] | None, evidence: Path) -> str:
    parts = ", ".join(f"`{part}`" for part in paper.parts)
    lines = [f"# {paper.id}", "", f"{_citation_text(paper)}, {paper.citation.id}. {paper.summary}", ""]
    lines += [f"- Claim: {paper.claim}", f"- Parts: {parts}", f"- Use: `{paper.command}`", ""]
    trial = paper.miniature
    arm_steps = "".join(f" ({arm.name}: {arm.steps:,})" for arm in trial.arms if arm.steps)
    place = ", ".join(trial.envs)
    if isinstance(trial, PairedTrial) and trial.bench:
        place = f"bench {trial.bench} ({', '.join(formatting.short_env_name(env) for env in trial.envs)})"
    lines += [
        f"Miniature: {place}, {trial.steps:,} steps per seed{arm_steps}, at most {trial.most_seeds} seeds per arm. "
        f"Verdict: **{verdict_status(paper, record)}**.",
        "",
    ]
    lines += (
        _findings_table(record) if record else [f"- {kind}: {claim.sentence}" for kind, claim in trial.named_claims]
    )
    lines += _rival_line(trial, record, evidence) if record and isinstance(trial, PairedTrial) else []
    lines += ["", _paragraphs(paper.remarks)] if paper.remarks else []
    if paper.fidelity:
        lines += ["", "Compared with the authors' code or listing:", ""]
        lines += ["| point | authors | here |", "| --- | --- | --- |"]
        lines += [f"| {row.point} | {row.authors} | {row.ours} |" for row in paper.fidelity]
    lines += ["", f"![scores of every arm](../../evidence/{paper.id}.svg)"] if record else []
    lines += _full_size_section(paper, evidence)
    return "\n".join([*lines, ""])


def _paragraphs(remarks: str) -> str:
    """Remarks in paragraphs, which begin where findings, objections and tuning do."""
    return re.sub(r"(?<=[.)]) (?=(What was found|What speaks against it|Tuning)\b)", "\n\n", remarks)


def _full_size_section(paper: Paper, evidence: Path) -> list[str]:
    """The full-size trial's verdict and findings, where it has been run."""
    full = record.read_full_record(evidence, paper.id)
    if full is None or paper.full is None:
        return []
    verdict = verdict_status(paper, full, full=True)
    place = f"{', '.join(paper.full.envs)}, {paper.full.steps:,} steps per seed. Verdict: **{verdict}**."
    return [
        "",
        "## Full size",
        "",
        place,
        "",
        *_findings_table(full),
        *(["", _paragraphs(paper.full_remarks)] if paper.full_remarks else []),
        "",
        f"![scores of every arm](../../evidence/{paper.id}-full.svg)",
    ]


def _rival_line(trial: PairedTrial, record: dict[str, Any], evidence: Path) -> list[str]:
    """How far the headline's rival has come on the bench."""
    headline = trial.headline
    if not isinstance(headline, Comparison) or not trial.bench:
        return []
    admission = read_admission(evidence, trial.bench_name)
    shares = rival_shares(headline, record, admission)
    if admission is None or not shares:
        return []
    percents = {env: f"{share:.0%}".replace("-", "−") for env, share in shares.items()}
    texts = " and ".join(f"{percent} ({formatting.short_env_name(env)})" for env, percent in percents.items())
    return [
        "",
        f"The rival of the headline, {headline.b}, has come {texts} of the way from random play to the best known, "
        f"by the {admission['anchors']['measure']}.",
    ]


def _findings_table(record: dict[str, Any]) -> list[str]:
    counts = f"{len(record['seeds'])} seeds per arm, {record['minutes']:.1f} minutes"
    if record.get("protocol") == 2:
        rows = ["| claim | environment | difference | in sd of seeds | pairs | verdict |"]
        rows += ["| --- | --- | ---: | ---: | ---: | --- |"]
        rows += ["| " + " | ".join(cells) + " |" for cells in claim_cells(record)]
        return [*rows, "", f"{counts}. Intervals have a level of 95%.", "", *_score_tables(record)]
    rows = ["| inequality | verdict | estimate | interval |", "| --- | --- | --- | --- |"]
    for finding in record["findings"]:
        interval = formatting.format_interval(finding["interval"]) if finding["interval"] else "exact"
        rows.append(f"| {finding['claim']} | {finding['verdict']} | {finding['estimate']:.3g} | {interval} |")
    return [*rows, "", f"{counts}, {record['level']:.1%} confidence intervals."]


def claim_cells(record: dict[str, Any]) -> list[tuple[str, ...]]:
    """The rows of a paired trial's table of claims: one for each claim and environment."""
    rows = []
    for finding in record["findings"]:
        claim = f"{finding['kind']}: {finding['claim']}"
        for number, (place, difference, effect) in enumerate(estimate_texts(finding)):
            texts = (claim, place, difference, effect, str(finding["pairs"] or ""), verdict_text(finding))
            rows.append(texts if number == 0 else ("", place, difference, effect, "", ""))
    return rows


def verdict_text(finding: dict[str, Any]) -> str:
    """A claim's verdict and, if it is undecided, the pairs that would decide."""
    more = finding["pairs_to_decide"]
    return finding["verdict"] if more is None else f"{finding['verdict']} ({more} pairs would decide)"


def estimate_texts(finding: dict[str, Any]) -> list[tuple[str, str, str]]:
    """For each environment of a claim: its name, the difference, and the difference in standard deviations of seeds."""
    if finding["verdict"] == NOT_APPLICABLE:
        return [("", "", "")]
    if not finding["envs"]:  # no comparison
        value = formatting.format_number(finding["estimate"])
        interval = f" ({formatting.format_interval(finding['interval'])})" if finding["interval"] else ""
        return [("all", value + interval, "")]
    texts = []
    for estimate in finding["envs"]:
        interval = formatting.format_interval(estimate["interval"])
        effect = ""
        if estimate["effect"] is not None:
            low, high = estimate["effect_interval"]
            effect = f"{estimate['effect']:.2f} ({low:.2f} to {high:.2f})".replace("-", "−")
        difference = f"{formatting.format_number(estimate['mean'])} ({interval})"
        texts.append((formatting.short_env_name(estimate["env"]), difference, effect))
    return texts


def _score_tables(record: dict[str, Any]) -> list[str]:
    """The interquartile means of all arms, a row for each arm and measure."""
    envs = record["declaration"]["envs"]
    lines = ["| arm | measure | " + " | ".join(formatting.short_env_name(env) for env in envs) + " |"]
    lines += ["| --- | --- |" + " ---: |" * len(envs)]
    for measure in record["measures"]:
        for arm, results in measure["arms"].items():
            values = [formatting.format_number(results[env]["iqm"]) for env in envs]
            lines.append(f"| {arm} | {measure['name']} | " + " | ".join(values) + " |")
    return [*lines, "", "Interquartile means over seeds."]
