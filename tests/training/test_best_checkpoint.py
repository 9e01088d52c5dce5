"""Evaluation during training: when it takes place by default, that it changes nothing, and the best checkpoint."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest

import thespis
from thespis.core.errors import UserError
from thespis.envs import registry
from thespis.runs import checkpoint
from thespis.training.evaluation_interval import evaluation_interval
from thespis.training.options import RunOptions

SETTINGS = {"num_steps": 16, "hidden_sizes": "8", "num_epochs": 1, "learning_rate": 0.05}


@pytest.fixture(scope="module", autouse=True)
def no_reports():
    """Write no reports: they take longer than the runs, and no test reads them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("thespis.train_run.write_report", lambda runs, out: out)
        yield


def train(out, **changes):
    options = {"settings": SETTINGS, "envs": 2, "seeds": 2, "report_every": 32, "episodes": 3, "steps": 320} | changes
    return thespis.train("ppo", "probe:maze", out=out, **options)


def final_returns(run) -> list[list[float]]:
    """Greedy returns of the final evaluation."""
    assert run.final_scores is not None
    return run.final_scores["greedy"]["scores"]


def means(run) -> dict[int, float]:
    """Mean greedy return at each evaluated step, the final one included."""
    lines = [*run.directory.evaluations(), {"step": run.step, "greedy": final_returns(run)}]
    return {line["step"]: float(np.mean(line["greedy"])) for line in lines}


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """A run with ten evaluations, and copies of its checkpoints at all these steps."""
    folder, kept = tmp_path_factory.mktemp("evaluated"), {}

    def keep(event):
        if event.kind == "checkpoint":
            kept[event.step] = shutil.copy(event.data["path"], folder / f"{event.step}.ckpt")

    run = train(folder / "run", evaluate_every=32, checkpoint_seconds=0.0, callbacks=[keep])
    return run, kept


@pytest.mark.long
def test_the_best_checkpoint_is_the_first_of_the_highest_mean(evaluated):
    run, kept = evaluated
    scores = means(run)
    best_step = max(scores, key=lambda step: (scores[step], -step))
    assert len(scores) == 10 and len(set(scores.values())) > 1
    assert run.directory.best == {"step": best_step, "score": scores[best_step]}
    best = thespis.load(run.path, checkpoint="best")
    states = checkpoint.load(kept[best_step], run.states, "['carry'].learner.method")[0]
    assert best.step == best_step and checkpoint.hash_tree(best.states) == checkpoint.hash_tree(states)
    assert np.mean(best.evaluate(3)["greedy"]["scores"]) == pytest.approx(scores[best_step])
    assert len(checkpoint.list_checkpoints(run.path / "checkpoints")) == 2  # the best one does not count


@pytest.mark.long
def test_evaluation_changes_no_bit_of_training(evaluated, tmp_path):
    plain = train(tmp_path / "plain", evaluate_every=0)
    run = evaluated[0]
    assert checkpoint.hash_tree(run.states) == checkpoint.hash_tree(plain.states)
    assert (run.path / "metrics.csv").read_bytes() == (plain.path / "metrics.csv").read_bytes()
    assert not (plain.path / "checkpoints" / "best.ckpt").exists() and plain.directory.best is None
    assert thespis.load(plain.path, checkpoint="best").step == plain.step  # the only one with a score


@pytest.mark.slow
def test_a_resumed_run_ends_with_the_same_best_checkpoint(evaluated, tmp_path):
    stop = [lambda event: event.kind == "metrics" and event.step >= 160]
    path = train(tmp_path / "run", evaluate_every=32, callbacks=stop).path
    (path / "final.json").unlink()  # as if it had been interrupted
    run = thespis.resume(path)
    assert run.directory.best == evaluated[0].directory.best
    assert (path / "evaluations.jsonl").read_bytes() == (evaluated[0].path / "evaluations.jsonl").read_bytes()


@pytest.mark.slow
def test_a_run_that_continues_keeps_the_better_one_of_its_ends(tmp_path):
    run = train(tmp_path / "run", steps=64, evaluate_every=0)
    first = float(np.mean(final_returns(run)))
    longer = thespis.resume(run.path, steps=96)
    second = float(np.mean(final_returns(longer)))
    best = longer.directory.best
    assert best is not None and best["score"] == max(first, second)


def test_checkpoints_by_step_and_unknown_ones(evaluated, tmp_path):
    run = evaluated[0]
    earlier = checkpoint.checkpoint_step(checkpoint.list_checkpoints(run.path / "checkpoints")[0])
    assert thespis.load(run.path, checkpoint=earlier).step == earlier
    with pytest.raises(UserError, match=f"has no checkpoint 7: it has latest, best, {earlier}, {run.step}"):
        thespis.load(run.path, checkpoint="7")
    shutil.copytree(run.path, tmp_path / "copy")
    for name in ("final.json", "checkpoints/best.ckpt"):
        (tmp_path / "copy" / name).unlink()
    with pytest.raises(UserError, match="not evaluated yet and has no best checkpoint"):
        thespis.load(tmp_path / "copy", checkpoint="best")


def test_the_default_is_ten_evaluations_where_they_are_cheap_and_safe():
    def interval(env, steps, **options):
        spec = registry.make_compiled("probe:maze").spec
        return evaluation_interval(RunOptions(**options), env, dataclasses.replace(spec, time_limit=100), steps)

    assert interval("probe:maze", 20_000) == 2_000
    assert interval("probe:maze", 9_999) == interval(None, 20_000) == interval("probe:maze", 20_000, evaluate_every=0)
    assert interval("probe:maze", 9_999) == 0 and interval("probe:maze", 50, evaluate_every=7) == 7
    assert interval("gymnasium:CartPole-v1", 20_000) == 2_000
    assert interval("gymnasium:CartPole-v1", 19_999) == 0  # 10 x 10 episodes of 100 steps are more than half
    assert interval("gymnasium:CartPole-v1", 19_999, episodes=9) == 1_999
    import gymnasium

    assert interval(gymnasium.make("CartPole-v1"), 1_000_000) == 0  # may be the one that trains
    assert interval(lambda: gymnasium.make("CartPole-v1"), 1_000_000) == 0


@pytest.mark.long
def test_by_default_only_greedy_play_is_evaluated(tmp_path):
    run = thespis.train("ppo", "probe:constant", steps=10_000, settings=SETTINGS, envs=20, out=tmp_path / "run")
    lines = run.directory.evaluations()
    assert len(lines) == 9 and all(line["sampled"] is None for line in lines) and run.directory.best is not None


@pytest.mark.long
def test_evaluating_a_run_from_data_needs_an_environment(tmp_path):
    data, settings = str(Path(__file__).parents[1] / "compatibility" / "steps"), {"hidden_sizes": "8", "batch_size": 4}
    with pytest.raises(UserError, match=r"evaluating needs an environment \(--env\), or held-out data"):
        thespis.train("bc", data=data, steps=4, settings=settings, evaluate_every=2, out=tmp_path / "run")
