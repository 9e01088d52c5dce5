"""Standard benchmarks: suites, cells, results, and the page that is generated from them."""

from __future__ import annotations

import dataclasses
import json
import shutil
import signal
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats

from thespis.benchmark import page
from thespis.benchmark.cell_run import (
    CellInterrupted,
    cell_config,
    is_current,
    reaches,
    read_result,
    result_path,
    train_cell,
)
from thespis.benchmark.equal_steps import compare_at_equal_steps
from thespis.benchmark.suite import Cell, MethodComparison, PublishedResult, Suite, load_suite, read_suite, suite_names
from thespis.core.errors import UserError
from thespis.runs.events import Event
from thespis.runs.serialization import read_json

ROOT = Path(__file__).parents[2]
PUBLISHED = PublishedResult(1.0, "paper")
CELL = Cell("a2c", "probe:constant", 3, PUBLISHED, preset="none", steps=80, episodes=2)
SUITE = Suite("small", "A small suite", "For tests.", (CELL,), {"paper": "a paper"})


@pytest.mark.long
@pytest.mark.parametrize("name", suite_names())
def test_cells_can_be_trained(name):
    suite = load_suite(name)
    for cell in suite.cells:
        config = cell_config(cell)
        assert config["preset"]["name"].startswith(f"{cell.method}/"), "a cell uses a preset"
        assert len(config["seeds"]) == cell.seeds >= 3 and config["steps"] > 0
        assert cell.play in ("greedy", "sampled")


def test_cells_are_selected_by_patterns():
    suite = load_suite("classic")
    assert [cell.name for cell in suite.select(["dqn/C*"])] == ["dqn/CartPole-v1"]
    assert len(suite.select(["ppo/*", "ppo/CartPole-v1"])) == len([c for c in suite.cells if c.method == "ppo"])
    assert suite.select([]) == list(suite.cells)
    with pytest.raises(UserError, match="no cell sac/CartPole-v1"):
        suite.select(["sac/CartPole-v1"])
    with pytest.raises(UserError, match="unknown suite 'clasic'"):
        load_suite("clasic")


def test_a_suite_with_a_cell_twice_or_an_unknown_source_is_refused(tmp_path):
    path = tmp_path / "wrong.toml"
    cell = '[[cell]]\nmethod = "ppo"\nenv = "A"\nseeds = 3\npublished = {mean = 1.0, source = "here"}\n'
    head = 'title = ""\ntext = ""\n'
    path.write_text(f"{head}{cell}{cell}[sources]\nhere = 'x'\n")
    with pytest.raises(ValueError, match="a cell twice"):
        read_suite(path)
    path.write_text(f"{head}{cell}[sources]\nthere = 'x'\n")
    with pytest.raises(ValueError, match="no source"):
        read_suite(path)


def test_a_comparison_of_unknown_cells_is_refused(tmp_path):
    path = tmp_path / "wrong.toml"
    cell = '[[cell]]\nmethod = "ppo"\nenv = "envpool:A-v1"\nseeds = 3\n'
    comparison = '[[comparison]]\nmethod = "ppo"\nbaseline = "sac"\nenv = "A-v1"\n'
    path.write_text(f'title = ""\ntext = ""\n{cell}{comparison}[sources]\n')
    with pytest.raises(ValueError, match="compares sac/A-v1, which is none of its cells"):
        read_suite(path)
    path.write_text(f'title = ""\ntext = ""\n{cell}{cell.replace("ppo", "sac")}{comparison}[sources]\n')
    suite = read_suite(path)
    assert [cell.name for cell in suite.compared_cells(suite.comparisons[0])] == ["ppo/A-v1", "sac/A-v1"]


def curve_result(seeds: list[int], curve: dict[int, list[float]]) -> dict[str, Any]:
    """What a comparison reads of a cell's result."""
    return {"config": {"seeds": seeds}, "curve": {"steps": list(curve), "scores": list(curve.values())}}


def test_methods_are_compared_at_the_last_common_step_on_common_seeds():
    short = curve_result([0, 1, 2], {10: [0.0, 0.0, 0.0], 20: [5.0, 9.0, 4.0]})
    long = curve_result([2, 1, 0, 7], {20: [5.0, 6.0, 3.0, 99.0], 30: [50.0, 60.0, 70.0, 80.0]})
    pairs = compare_at_equal_steps(short, long)
    assert (pairs.step, pairs.num_pairs, pairs.num_better) == (20, 3, 2)
    differences = np.array([5.0 - 3.0, 9.0 - 6.0, 4.0 - 5.0])
    assert pairs.difference == pytest.approx(differences.mean())
    expected = scipy.stats.t.interval(0.95, 2, differences.mean(), scipy.stats.sem(differences))
    assert pairs.interval == pytest.approx(expected)
    with pytest.raises(ValueError, match="nothing to compare"):
        compare_at_equal_steps(short, curve_result([0, 1, 2], {15: [0.0, 0.0, 0.0]}))


def interrupt(event: Event) -> None:
    """Ctrl-C after the first rollout."""
    if event.kind == "progress":
        signal.raise_signal(signal.SIGINT)


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    """Results of the small suite, whose cell was interrupted once and then continued."""
    path = tmp_path_factory.mktemp("results")
    with pytest.raises(CellInterrupted):
        train_cell(SUITE, CELL, path, [interrupt])
    assert read_result(path, SUITE, CELL) is None
    started = read_json(path / "runs" / "small" / "a2c-constant" / "run.json")
    result = train_cell(SUITE, CELL, path)
    assert result["config"]["method"] == started["method"]
    return path


@pytest.mark.long
def test_a_result_has_scores_curve_and_settings(results):
    result = read_result(results, SUITE, CELL)
    assert result is not None and is_current(CELL, result)
    assert result["curve"]["steps"] == [40, 80]  # every tenth of 80 steps, rounded up to whole rollouts of 5 x 8
    assert [len(point) for point in result["curve"]["scores"]] == [3, 3]
    assert result["scores"]["greedy"] == [10.0, 10.0, 10.0] and result["iqm"] == 10.0
    assert result["config"]["seeds"] == [0, 1, 2] and result["preset"] is None
    assert result["seconds"] > 0 and result["cpu_seconds"] > 0 and result["versions"]["thespis"]
    assert not list((results / "runs" / "small").iterdir()), "a finished run is removed"


@pytest.mark.long
def test_a_result_of_other_settings_is_outdated(results):
    result = read_result(results, SUITE, CELL)
    for change in ({"episodes": 3}, {"seeds": 4}, {"steps": 120}, {"play": "sampled"}, {"preset": "a2c/Acrobot-v1"}):
        assert not is_current(dataclasses.replace(CELL, **change), result), change
    moved = dataclasses.replace(CELL, published=PublishedResult(2.0, "paper"))
    assert is_current(moved, result), "the published value is no part of the training"


@pytest.mark.parametrize(
    ("iqm", "interval", "reached"),
    [(5.0, None, True), (4.9, None, False), (4.0, (3.0, 5.0), True), (4.0, (3.0, 4.9), False), (6.0, (5.5, 7.0), True)],
)
def test_a_cell_reaches_the_published_mean_with_its_interval(iqm, interval, reached):
    assert reaches({"iqm": iqm, "interval": interval}, PublishedResult(5.0, "paper")) is reached


@pytest.mark.long
def test_the_page_says_what_the_results_are(results):
    text = page.render_page([SUITE], results)
    assert "**1 of 1 trained cells reach the published result**." in text
    row = next(line for line in text.splitlines() if line.startswith("| `a2c/constant`"))
    assert row.startswith("| `a2c/constant` | 80 | 10 |") and " yes | 3 |" in row
    harder = dataclasses.replace(CELL, published=PublishedResult(20.0, "paper"))
    missing = dataclasses.replace(CELL, method="ppo")
    text = page.render_page([dataclasses.replace(SUITE, cells=(harder, missing))], results)
    assert "**0 of 1 trained cells reach" in text and "`ppo/constant`." in text


@pytest.mark.long
def test_notes_of_cells_stand_below_the_table(results):
    cell = dataclasses.replace(CELL, note="its source trains for longer")
    lines = page.render_page([dataclasses.replace(SUITE, cells=(cell,))], results).splitlines()
    assert "- `a2c/constant`: its source trains for longer" in lines
    assert is_current(cell, read_result(results, SUITE, CELL))


@pytest.mark.long
def test_compared_cells_need_no_published_result(results, tmp_path):
    shutil.copytree(results, tmp_path, dirs_exist_ok=True)
    method = dataclasses.replace(CELL, published=None)
    baseline = dataclasses.replace(method, method="ppo")
    comparisons = (MethodComparison("a2c", "ppo", "constant"),)
    suite = dataclasses.replace(SUITE, cells=(method, baseline), comparisons=comparisons)
    assert "Methods at equal steps" not in page.render_page([suite], tmp_path), "the baseline is not trained"
    result, config = read_json(result_path(tmp_path, suite, method)), cell_config(baseline)
    copied = result | {"config": {name: config.get(name) for name in result["config"]}}
    result_path(tmp_path, suite, baseline).write_text(json.dumps(copied))
    text = page.render_page([suite], tmp_path)
    assert "**0 of 0" not in text and "reach the published result" not in text
    row = next(line for line in text.splitlines() if line.startswith("| `a2c/constant`"))
    assert row.startswith("| `a2c/constant` | 80 | 10 |") and "|  |  | 3 |" in row
    assert "| `constant` | 80 | `a2c` 10 | `ppo` 10 | 0 | 0 to 0 | 0 of 3 pairs |" in text


@pytest.mark.long
def test_the_figure_has_a_curve_per_cell(results):
    svg = page.plot_suite([(CELL, read_result(results, SUITE, CELL))])
    assert ElementTree.fromstring(svg).tag.endswith("svg") and b"constant" in svg


def test_the_page_in_the_docs_is_that_of_the_results():
    suites = [load_suite(name) for name in suite_names()]
    text = page.render_page(suites, ROOT / "results")
    assert (ROOT / "docs" / page.PAGE).read_text() == text, "thespis benchmark classic --write docs"
    images = set((ROOT / "docs" / "images").glob("results-*.svg"))
    assert {path.name for path in images} == {
        f"results-{s.name}.svg" for s in suites if f"results-{s.name}.svg" in text
    }


def test_committed_results_are_of_cells_and_complete():
    cells = {
        result_path(Path("results"), suite, cell): cell
        for suite in map(load_suite, suite_names())
        for cell in suite.cells
    }
    files = {path.relative_to(ROOT): json.loads(path.read_text()) for path in (ROOT / "results").rglob("*.json")}
    assert set(files) <= set(cells)
    for path, result in files.items():
        assert len(result["scores"]["greedy"]) == len(result["config"]["seeds"]) == len(result["curve"]["scores"][0])
        assert len(result["curve"]["steps"]) >= 9
        published = cells[path].published
        if published and is_current(cells[path], result) and not reaches(result, published):
            assert cells[path].note, f"{path} does not reach the published result: say why in the suite's file"
