"""Over-optimized learned rewards are told from others, on curves with known changes, and in reports."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from synthetic_runs import make_run

from thespis.evaluation.over_optimization import find_over_optimization
from thespis.evaluation.report import write_report

NUM_ROWS = 100
RISE = np.linspace(0, 1, NUM_ROWS)
HILL = 1 - (2 * RISE - 0.8) ** 2  # its peak is at 0.4 of the run


def noise(seed, scale=0.02):
    return scale * np.random.default_rng(seed).normal(size=NUM_ROWS)


def metrics(*curves):
    """Metrics of seeds with these pairs of learned reward and return."""
    return {
        "seed": np.repeat(np.arange(len(curves)), NUM_ROWS).astype(float),
        "step": np.tile(np.arange(1, NUM_ROWS + 1) * 64.0, len(curves)),
        "feedback_reward": np.concatenate([learned for learned, _ in curves]),
        "episode_return": np.concatenate([true for _, true in curves]),
    }


def test_a_return_that_falls_while_the_learned_reward_rises():
    result = find_over_optimization(metrics((RISE + noise(0), HILL + noise(1)), (RISE + noise(2), HILL + noise(3))))
    assert result is not None and result.is_over_optimized
    assert result.peak_step == pytest.approx(0.4 * 64 * NUM_ROWS, abs=0.1 * 64 * NUM_ROWS)
    assert result.peak_return == pytest.approx(1.0, abs=0.05)
    assert result.final_return == pytest.approx(HILL[-10:].mean(), abs=0.03)
    assert result.final_reward == pytest.approx(RISE[-10:].mean(), abs=0.03)
    assert "is over-optimized: it rose from" in result.sentence and "ensemble" in result.sentence


@pytest.mark.parametrize(
    ("learned", "true", "text"),
    [
        (RISE, RISE, "is not over-optimized"),
        (RISE, np.zeros(NUM_ROWS), "is not over-optimized"),  # noise alone
        (HILL, HILL, "and so did the learned reward"),
    ],
)
def test_other_runs_are_not(learned, true, text):
    result = find_over_optimization(metrics((learned + noise(0, 1e-3), true + noise(1))))
    assert result is not None and not result.is_over_optimized and text in result.sentence


def test_runs_without_a_learned_reward_or_with_few_rows_say_nothing():
    full = metrics((RISE, HILL))
    assert find_over_optimization({name: full[name] for name in ("seed", "step", "episode_return")}) is None
    assert find_over_optimization({name: column[:15] for name, column in full.items()}) is None
    assert find_over_optimization(full | {"episode_return": np.full(NUM_ROWS, np.nan)}) is None


def with_learned_reward(path):
    """A run's metrics with a return that falls, and with a learned reward that rises in the place of values."""
    with (path / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    for row, learned, true in zip(rows, RISE, HILL, strict=True):
        row["feedback_reward"] = str(learned)
        row["episode_return"] = str(true)
        del row["value"]
    with (path / "metrics.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def test_the_report_says_so(tmp_path):
    with_learned_reward(make_run(tmp_path / "run", seeds=1, points=NUM_ROWS, metrics=("value",)))
    page = write_report([tmp_path / "run"], tmp_path / "report.html").read_text()
    assert "Learned reward" in page and "The learned reward is over-optimized (see below)" in page
    make_run(tmp_path / "plain", seeds=1, points=NUM_ROWS)
    assert "Learned reward" not in write_report([tmp_path / "plain"], tmp_path / "plain.html").read_text()


def test_reports_of_reward_models_say_how_sure_they_are(tmp_path):
    run = make_run(tmp_path / "run", seeds=2)
    lines = {"over-confident": (0.9, 0.7), "under-confident": (0.6, 0.9), "is calibrated": (0.81, 0.8)}
    for text, (confidence, accuracy) in lines.items():
        line = {"step": 100, "metrics": {"confidence": [confidence] * 2, "accuracy": [accuracy] * 2}}
        (run / "held_out.jsonl").write_text(json.dumps(line) + "\n")
        page = write_report([run], tmp_path / "report.html").read_text()
        assert text in page and f"right in {accuracy:.0%}" in page
