"""The papers themselves: declarations that hold together, parts that exist, evidence that fits, a page that is new."""

import importlib
import json
from pathlib import Path

import pytest

from thespis.evidence import record
from thespis.evidence.claims import Finding, overall
from thespis.evidence.page import pages, state
from thespis.papers import registry

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "evidence"


@pytest.mark.parametrize("id", registry.ids())
def test_a_declaration_names_what_exists(id):
    paper = registry.load(id)
    assert paper.id == id and paper.claim.endswith(".") and paper.does.endswith(".")
    for part in paper.parts:
        module, _, name = part.partition(":")
        assert hasattr(importlib.import_module(module), name), part
    for trial in filter(None, (paper.miniature, paper.full)):
        json.dumps(trial.declaration())
        assert len({measure.name for measure in record.measures(trial)}) == len(record.measures(trial))


@pytest.mark.parametrize("id", registry.ids())
def test_committed_evidence_fits_its_declaration_and_itself(id):
    found = record.read(EVIDENCE, id)
    if found is None:
        assert f"| [{id}](papers/{id}.md) |" in (ROOT / "docs" / "papers.md").read_text()
        return
    assert state(registry.load(id), found) == found["verdict"], f"run again: thespis reproduce {id}"
    assert found["verdict"] == overall([Finding(f["claim"], f["verdict"], 0.0, None) for f in found["findings"]])
    assert found["declared_in"], "evidence of a declaration that had not been committed"
    assert (EVIDENCE / f"{id}.svg").exists()


def test_the_pages_are_not_stale():
    docs = ROOT / "docs"
    written = {str(file.relative_to(docs)): file.read_text() for file in docs.glob("papers/*.md")}
    written["papers.md"] = (docs / "papers.md").read_text()
    assert written == pages([registry.load(id) for id in registry.ids()], EVIDENCE), "thespis papers --write docs"
