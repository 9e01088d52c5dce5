"""Tuning: search spaces, and studies that stop, continue and write a preset."""

from __future__ import annotations

import dataclasses
import signal

import pytest

from thespis.core.errors import UserError
from thespis.learners.optim.optimizers import LinearSchedule
from thespis.methods.online.dqn import DQN
from thespis.methods.online.ppo import PPO
from thespis.presets.applied import with_preset
from thespis.presets.preset import read_presets
from thespis.sweeps import trials
from thespis.sweeps import tune as tuning
from thespis.sweeps.search_space import Dimension, search_space
from thespis.sweeps.tune import tune

FAST = {"steps": 80, "episodes": 1, "evaluate_every": 40, "settings": ["hidden_sizes=4", "num_steps=4"]}


def space_of(method, *names: str) -> dict[str, Dimension]:
    return {dimension.name: dimension for dimension in search_space(method, names)}


def test_intervals_follow_from_value_and_range():
    space = space_of(PPO())
    expected = {
        "learning_rate": (3e-5, 3e-3, "log"),
        "discount": (0.9, 0.999, "complement"),
        "ent_coef": (1e-5, 0.1, "log"),  # 0 without tuning
        "clip_range": (0.2 / 3, 0.6, "log"),
        "minibatch_size": (16, 256, "log"),
    }
    for name, (low, high, scale) in expected.items():
        assert (space[name].low, space[name].high) == (pytest.approx(low), pytest.approx(high)), name
        assert space[name].scale == scale and space[name].is_int == (name == "minibatch_size")
    assert "vf_coef" not in space and "hidden_sizes" not in space
    assert {"learning_rate", "target_update_interval", "feed.batch_size"} <= set(space_of(DQN()))


def test_the_start_of_a_schedule_is_tuned():
    space = space_of(PPO(learning_rate=LinearSchedule(1e-3, 100)))
    assert space["learning_rate.init_value"].low == pytest.approx(1e-4) and "learning_rate" not in space


def test_the_user_names_settings_and_intervals():
    space = space_of(PPO(), "vf_coef=0.25..1", "num_steps", "discount=0.9..0.99", "ent_coef=-0.1..0.1")
    assert space["vf_coef"] == Dimension("vf_coef", 0.25, 1.0, "log")
    assert list(space) == ["vf_coef", "feed.num_steps", "discount", "ent_coef"]
    assert (space["discount"].scale, space["ent_coef"].scale) == ("complement", "linear")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rate", "does not exist"),
        ("hidden_sizes", "only numbers are tuned"),
        ("discount=0.9", "an interval is written discount=0.1..0.5"),
        ("discount=0.9..1.5", "in \\[0, 1\\]"),
        ("discount=0.9..0.8", "must grow"),
        ("minibatch_size=9..15", "powers of 2"),
    ],
)
def test_a_wrong_name_or_interval_is_refused(text, message):
    with pytest.raises(UserError, match=message):
        search_space(PPO(), [text])


class FixedTrial:
    """A trial of Optuna that takes the middle of every interval, as Optuna sees it."""

    def suggest_float(self, name, low, high, *, log=False):
        return (low * high) ** 0.5 if log else (low + high) / 2

    def suggest_int(self, name, low, high):
        return (low + high) // 2


def test_suggestions_are_on_the_scale_of_the_setting():
    suggest = {name: dimension.suggest(FixedTrial()) for name, dimension in space_of(PPO()).items()}
    assert suggest["learning_rate"] == pytest.approx(3e-4)
    assert suggest["discount"] == pytest.approx(0.99)
    assert suggest["minibatch_size"] == 64


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A study that was interrupted in its second trial and then continued."""
    path = tmp_path_factory.mktemp("tune") / "study"
    first = run_interrupted(path)
    return first, tune("a2c", "probe:constant", trials=3, seeds=3, names=NAMES, out=path, **FAST)


NAMES = ["learning_rate", "discount=0.5..0.9"]


def run_interrupted(path):
    listener = trials._TrialListener.__call__

    def interrupt(self, event):
        if (path / "trial-0001").is_dir() and event.kind == "progress":
            signal.raise_signal(signal.SIGINT)
        return listener(self, event)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trials._TrialListener, "__call__", interrupt)
        return tune("a2c", "probe:constant", trials=3, seeds=3, names=NAMES, out=path, **FAST)


@pytest.mark.long
def test_an_interrupted_study_continues_with_the_same_settings(study):
    first, second = study
    assert (first.reason, len(first.trials)) == ("interrupted", 1)
    assert (second.reason, len(second.trials)) == ("finished", 3)
    assert second.trials[0] == first.trials[0]
    assert [trial.number for trial in second.trials] == [0, 2, 3]  # the second one was begun anew
    assert all(0.5 <= trial.settings["discount"] <= 0.9 for trial in second.trials)
    assert len({trial.settings["learning_rate"] for trial in second.trials}) == 3


@pytest.mark.long
def test_the_best_trial_becomes_a_preset(study):
    _, result = study
    assert result.best is not None and result.best.score == 10.0
    (preset,) = read_presets(result.preset)
    assert preset.envs == ("constant",) and "the best of 3 trials with 3 seeds" in preset.source
    run = with_preset(result.preset, "a2c", "probe:constant", [], steps=None, num_envs=None)
    assert (run.steps, run.num_envs, run.method.hidden_sizes) == (80, 8, (4,))
    assert run.method.learning_rate == pytest.approx(result.best.settings["learning_rate"])


def test_the_best_preset_keeps_what_was_not_tuned(tmp_path):
    study = trials.Study(tmp_path, "ppo", "CartPole-v1", (), {"settings": ["vf_coef=0.1"]}, 4096, 0)
    best = trials.TrialResult(0, {"learning_rate.init_value": 0.5, "discount": 0.75}, 9.0, "complete")
    preset = tuning._best_preset(study, {"seeds": [0], "envs": 8}, best, 1)
    assert preset.settings["learning_rate"] == {"linear_from": 0.5}
    assert (preset.settings["discount"], preset.settings["vf_coef"]) == (0.75, "0.1")
    assert preset.settings["gae_lambda"] == 0.8  # of the preset of RL Zoo
    assert "not tuned: ppo/CartPole-v1" in preset.source


def test_a_trial_below_the_median_is_stopped():
    from thespis.runs.events import Event

    reports = []

    def below_the_median_at_the_second_report(step, score):
        reports.append((score, step))
        return len(reports) == 2

    listener = trials._TrialListener(below_the_median_at_the_second_report)
    assert listener(Event("evaluation", 8, {"greedy": [[1.0, 3.0], [4.0, 4.0], [2.0, 4.0]]})) is False
    assert listener(Event("evaluation", 16, {"greedy": [[0.0]] * 3})) is True and listener.pruned
    assert reports == [(pytest.approx(3.0), 8), (0.0, 16)]


def test_a_directory_that_is_no_study_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="is not a study"):
        tune("a2c", "probe:constant", trials=1, out=tmp_path, **FAST)
    with pytest.raises(UserError, match="--trials 0"):
        tune("a2c", "probe:constant", trials=0, out=tmp_path / "new", **FAST)


@pytest.mark.slow
def test_several_processes_share_a_study(tmp_path):
    result = tune("a2c", "probe:constant", trials=4, jobs=2, seeds=3, names=NAMES, out=tmp_path / "study", **FAST)
    assert (result.reason, len(result.trials)) == ("finished", 4)
    assert {trial.state for trial in result.trials} <= {"complete", "pruned"}
    again = tune("a2c", "probe:constant", trials=4, seeds=3, names=NAMES, out=tmp_path / "study", **FAST)
    assert [dataclasses.asdict(trial) for trial in again.trials] == [dataclasses.asdict(t) for t in result.trials]
