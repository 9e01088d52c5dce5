"""Declarations of all papers: parts exist, committed evidence fits its declaration, pages are up to date."""

import importlib
import json
from pathlib import Path

import pytest

from thespis.evidence import record
from thespis.evidence.claims import Finding, overall_verdict
from thespis.evidence.pages import render_pages, verdict_status
from thespis.papers import registry
from thespis.runs.config import check_storable
from thespis.runs.ranges import check_ranges

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "evidence"


@pytest.mark.parametrize("id", registry.paper_ids())
def test_a_declaration_names_existing_parts(id):
    paper = registry.load_paper(id)
    assert paper.id == id and paper.claim.endswith(".") and paper.summary.endswith(".")
    for part in paper.parts:
        module, _, name = part.partition(":")
        assert hasattr(importlib.import_module(module), name), part
    for trial in filter(None, (paper.miniature, paper.full)):
        json.dumps(trial.declaration())
        for part in [part for arm in trial.arms for part in (arm.method, *dict(arm.options).values())]:
            check_ranges(part)
            check_storable(part, "method")
        assert len({measure.name for measure in record.trial_measures(trial)}) == len(record.trial_measures(trial))


@pytest.mark.parametrize("id", registry.paper_ids())
def test_committed_evidence_fits_its_declaration(id):
    evidence = record.read_record(EVIDENCE, id)
    if evidence is None:
        assert f"| [{id}](papers/{id}.md) |" in (ROOT / "docs" / "papers.md").read_text()
        return
    assert verdict_status(registry.load_paper(id), evidence) == evidence["verdict"], (
        f"run again: thespis reproduce {id}"
    )
    findings = [Finding(f["claim"], f["verdict"], 0.0, None) for f in evidence["findings"]]
    expected = findings[0].verdict if evidence.get("protocol") == 2 else overall_verdict(findings)
    assert evidence["verdict"] == expected
    assert evidence["declared_in"], "evidence of a declaration that had not been committed"
    assert (EVIDENCE / f"{id}.svg").exists()


def test_pages_are_up_to_date():
    docs = ROOT / "docs"
    written = {str(file.relative_to(docs)): file.read_text() for file in docs.glob("papers/*.md")}
    written["papers.md"] = (docs / "papers.md").read_text()
    assert written == render_pages([registry.load_paper(id) for id in registry.paper_ids()], EVIDENCE), (
        "thespis papers --write docs"
    )
