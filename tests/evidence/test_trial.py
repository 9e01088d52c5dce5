"""Trials: measures of real runs, finished runs that are not repeated, records and their verdict status."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest
from made_up_paper import made_up_paper

import thespis
from thespis.core.errors import UserError
from thespis.data.feeds import Rollouts
from thespis.envs import registry
from thespis.evaluation.cem_planner import planner_returns, random_returns
from thespis.evidence import figure, record
from thespis.evidence.claims import NOT_SHOWN, DifferentParameters, EqualParameters, Superiority
from thespis.evidence.measures import (
    calibration_error,
    constraint_violation,
    fall_from_peak,
    final_return,
    learning_curve_auc,
    mean_metric,
    modified_env_return,
    overestimation,
    planner_normalized_return,
    policy_parameters,
    seconds_to_threshold,
    steps_to_threshold,
    success_rate,
    training_seconds,
)
from thespis.evidence.pages import render_pages, verdict_status
from thespis.evidence.paper import Arm, Trial
from thespis.evidence.runner import TrialInterrupted, run_trial
from thespis.methods.online.a2c import A2C

FEED = Rollouts(num_steps=16, num_envs=4)
SMALL = A2C(hidden_sizes=(8,), feed=FEED, discount=0.9)
ENV = "gymnax:CartPole-v1"
TRIAL = Trial(
    arms=(Arm("one", SMALL), Arm("two", SMALL), Arm("fast", dataclasses.replace(SMALL, learning_rate=1e-2))),
    envs=(ENV,),
    steps=640,
    claims=(
        EqualParameters("one", "two", 0.0),
        DifferentParameters("one", "fast", 1e-6),
        Superiority("one", "two", final_return()),
    ),
    seeds_per_look=2,
    max_looks=2,
    num_episodes=2,
)
PAPER = made_up_paper(TRIAL)


@pytest.fixture(scope="module", autouse=True)
def no_reports():
    """Write no reports of single runs: they take longer than the runs, and no test reads them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("thespis.train_run.write_report", lambda runs, out: out)
        yield


@pytest.fixture(scope="module", autouse=True)
def equal_arms_train_once():
    """Arms that differ only in their names share copies of one run. Reproducibility of runs is tested elsewhere."""
    train, finished_runs = thespis.api.train, {}

    def train_once(method, env, out, callbacks=(), **arguments):
        name = repr((method, env, arguments))
        if callbacks or name not in finished_runs:
            run = train(method, env, out=out, callbacks=callbacks, **arguments)
            if run.final_scores is not None:
                finished_runs.setdefault(name, out)
            return run
        shutil.copytree(finished_runs[name], out)
        return thespis.load(out)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thespis.api, "train", train_once)
        yield


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    return run_trial(TRIAL, tmp_path_factory.mktemp("runs"), lambda piece: [])


@pytest.fixture(scope="module")
def run(outcome):
    return outcome.runs.runs["one", ENV][0]


@pytest.mark.long
def test_seeds_are_added_until_the_last_look(outcome):
    assert [finding.verdict for finding in outcome.findings[:2]] == ["shown", "shown"]
    assert outcome.findings[2].verdict == NOT_SHOWN and outcome.findings[2].estimate == 0.5  # equal arms
    assert outcome.num_looks == 2 and outcome.runs.seeds() == [0, 1, 2, 3] and outcome.seconds > 0
    assert outcome.runs.scores("one", final_return()).shape == (4, 1)


@pytest.mark.slow
def test_no_seed_is_added_after_all_claims_are_decided(tmp_path):
    trial = dataclasses.replace(TRIAL, claims=TRIAL.claims[:2])
    assert run_trial(trial, tmp_path, lambda piece: []).num_looks == 1


@pytest.mark.long
def test_finished_runs_are_not_repeated_and_changed_arms_are(outcome):
    directory = outcome.runs.runs["one", ENV][0].path.parent
    events = []

    def watch(piece):
        return [lambda event: events.append((piece.arm.name, event.kind))]

    repeated = run_trial(TRIAL, directory, watch)
    assert repeated.findings == outcome.findings and not events
    changed = (dataclasses.replace(TRIAL.arms[0], method=dataclasses.replace(SMALL, gae_lambda=0.5)), *TRIAL.arms[1:])
    run_trial(dataclasses.replace(TRIAL, arms=changed, max_looks=1), directory, watch)
    assert {name for name, _ in events} == {"one"}


@pytest.mark.slow
def test_an_interrupted_trial_can_be_continued(tmp_path):
    import os
    import signal

    def stop(event):
        if event.kind == "metrics":
            os.kill(os.getpid(), signal.SIGINT)

    trial = dataclasses.replace(TRIAL, max_looks=1)
    with pytest.raises(TrialInterrupted):
        run_trial(trial, tmp_path, lambda piece: [stop])
    expected = run_trial(trial, tmp_path / "straight", lambda piece: [])
    resumed = run_trial(trial, tmp_path, lambda piece: [])
    assert resumed.findings == expected.findings


def test_measures_of_returns(run):
    returns = np.array(run.final_scores["greedy"]["scores"])
    np.testing.assert_array_equal(final_return().compute(run), returns.mean(axis=1))
    threshold = float(np.median(returns))
    np.testing.assert_array_equal(success_rate(threshold).compute(run), (returns >= threshold).mean(axis=1))


def test_measures_of_learning_curves(run):
    table = run.metrics()
    rows = [table["episode_return"][table["seed"] == seed] for seed in (0, 1)]
    finite_returns = [row[np.isfinite(row)] for row in rows]
    area = learning_curve_auc().compute(run)
    assert all(row.min() <= value <= row.max() for row, value in zip(finite_returns, area, strict=True))
    np.testing.assert_array_equal(steps_to_threshold(1e9).compute(run), [2 * 640, 2 * 640])
    first = steps_to_threshold(0.0).compute(run)
    assert all(1 <= step <= 640 for step in first) and not steps_to_threshold(0.0).larger_is_better
    assert (seconds_to_threshold(0.0).compute(run) <= seconds_to_threshold(1e9).compute(run)).all()
    entropy = mean_metric("entropy").compute(run)
    assert ((entropy > 0) & (entropy <= np.log(2) + 1e-6)).all()
    np.testing.assert_allclose(constraint_violation("entropy", 0.1).compute(run), entropy - 0.1)
    assert (constraint_violation("entropy", 5.0).compute(run) == 0).all()
    with pytest.raises(UserError, match="has no metric 'cost'"):
        mean_metric("cost").compute(run)


def test_a_fall_is_measured_from_the_best_part_of_training(run, monkeypatch):
    """The first seed falls from 3 to 1 and ends so, the second is best at the end; rows without an episode repeat."""
    returns = np.array([[0.0, 2, np.nan, 4, 1, 1], [0.0, 1, 1, 2, 2, 4]])
    table = {"seed": np.repeat([0, 1], 6), "episode_return": returns.ravel()}
    monkeypatch.setattr(type(run), "metrics", lambda self: table)
    fall = fall_from_peak(num_parts=3)
    np.testing.assert_allclose(fall.compute(run), [2.0, 0.0])  # parts: 1, 3, 1 and 0.5, 1.5, 3
    assert not fall.larger_is_better


def test_measures_of_the_critic(run):
    calibration = run.final_scores["calibration"]
    bias, error = overestimation().compute(run), calibration_error().compute(run)
    seed = np.array(calibration["seed"])
    errors = np.array(calibration["predicted"])[seed == 1] - np.array(calibration["realised"], float)[seed == 1]
    assert bias[1] == pytest.approx(np.nanmean(errors)) and (error >= np.abs(bias) - 1e-9).all()


def test_parameters_are_those_of_the_policy(outcome):
    first, second = (policy_parameters().compute(outcome.runs.runs[arm, ENV][0]) for arm in ("one", "two"))
    np.testing.assert_array_equal(first, second)
    assert first.shape[0] == 2 and not np.array_equal(first[0], first[1])


def test_the_record_is_read_back_and_reported_as_outdated(outcome, tmp_path):
    written = record.make_record(PAPER, False, outcome, None)
    path = record.write_record(tmp_path, written, figure.plot_record(written))
    assert path.with_suffix(".svg").read_bytes().startswith(b"<?xml")
    loaded = record.read_record(tmp_path, "made-up")
    assert (
        loaded == json.loads(json.dumps(written))
        and loaded["verdict"] == NOT_SHOWN
        and loaded["digest"] == TRIAL.digest
    )
    assert (
        loaded["measures"][0]["arms"]["one"][ENV]["scores"] == outcome.runs.scores("one", final_return())[:, 0].tolist()
    )
    changed = dataclasses.replace(PAPER, miniature=dataclasses.replace(TRIAL, steps=641))
    assert (
        verdict_status(PAPER, loaded) == NOT_SHOWN
        and verdict_status(changed, loaded) == "outdated"
        and verdict_status(PAPER, None) == "none yet"
    )
    settings = loaded["declaration"]["arms"]["one"]["method"]
    gae_lambda = settings.pop("gae_lambda")
    # a record without a setting that was added later, with its default value, is up to date
    assert gae_lambda == A2C().gae_lambda and verdict_status(PAPER, loaded) == NOT_SHOWN
    settings["gae_lambda"] = gae_lambda / 2
    assert verdict_status(PAPER, loaded) == "outdated"
    settings["trace"], settings["gone"] = gae_lambda, 1
    assert verdict_status(PAPER, loaded) == "outdated"
    text = render_pages([PAPER], tmp_path)["papers/made-up.md"]
    assert "# made-up" in text and "| not shown | 0.5 |" in text
    path.write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        record.read_record(tmp_path, "made-up")


def test_a_measure_of_one_environment_lists_the_arms_trained_there(outcome):
    def arms(env):
        return list(record._measure_table(TRIAL, outcome.runs, dataclasses.replace(final_return(), env=env))["arms"])

    assert arms(ENV) == arms(None) == ["one", "two", "fast"] and arms("gymnax:Pendulum-v1") == []


def test_mistakes_in_a_declaration_are_refused():
    with pytest.raises(ValueError, match="three"):
        dataclasses.replace(TRIAL, claims=(EqualParameters("one", "three", 0.0),))
    with pytest.raises(ValueError, match="directory"):
        Arm("a/b", SMALL)
    with pytest.raises(UserError, match="no full-size trial"):
        PAPER.trial(True)


@pytest.mark.slow
def test_sequential_seeds_have_their_own_runs_and_times_and_equal_scores(outcome, tmp_path):
    trial = dataclasses.replace(TRIAL, arms=TRIAL.arms[:2], claims=TRIAL.claims[:1], sequential_seeds=True)
    separate = run_trial(trial, tmp_path, lambda piece: []).runs
    assert [run.config["seeds"] for run in separate.runs["one", ENV]] == [[0], [1]] and separate.seeds() == [0, 1]
    together = outcome.runs.scores("one", final_return())[:2]
    np.testing.assert_allclose(separate.scores("one", final_return()), together)
    assert trial.digest != dataclasses.replace(trial, sequential_seeds=False).digest
    shared_seconds, separate_seconds = (
        outcome.runs.scores("one", training_seconds()),
        separate.scores("one", training_seconds()),
    )
    assert (
        shared_seconds[0] == shared_seconds[1]
        and separate_seconds[0] != separate_seconds[1]
        and (separate_seconds > 0).all()
        and not training_seconds().larger_is_better
    )


@pytest.mark.slow
def test_a_run_is_evaluated_with_other_environment_parameters(tmp_path):
    """The probe pays 1 per step until its time limit, which is 10 in training."""
    run = thespis.train(SMALL, "probe:constant", steps=64, seeds=2, episodes=1, out=tmp_path / "run")
    assert final_return().compute(run).tolist() == [10.0, 10.0]
    assert modified_env_return(3, time_limit=7).compute(run).tolist() == [7.0, 7.0]
    assert modified_env_return(3, "sampled", time_limit=7).compute(run).tolist() == [7.0, 7.0]
    assert modified_env_return(time_limit=7).name == "greedy return with time_limit = 7"
    assert modified_env_return(3, "sampled", time_limit=7).name == "sampled return with time_limit = 7"


@pytest.mark.slow
def test_returns_are_normalized_by_random_play_and_a_planner(run, tmp_path):
    """The planner plays the environment of the run; discrete actions are refused."""
    pendulum_run = thespis.train(
        thespis.DDPG(hidden_sizes=(8,)), "Pendulum-v1", steps=200, episodes=2, out=tmp_path / "fresh"
    )
    env = registry.make_compiled("gymnax:Pendulum-v1")
    low, high = (play(env, 1, jax.random.key(0)).mean() for play in (random_returns, planner_returns))
    assert high > -400 > low
    expected = (np.mean(pendulum_run.final_scores["greedy"]["scores"]) - low) / (high - low)
    np.testing.assert_allclose(planner_normalized_return(1).compute(pendulum_run), expected, rtol=1e-5)
    with pytest.raises(UserError, match="needs a box of floats"):
        planner_normalized_return(1).compute(run)


@pytest.mark.slow
def test_an_option_of_an_arm_reaches_its_run(tmp_path):
    arm = Arm("rare", SMALL, {"envs": 2})
    trial = dataclasses.replace(
        TRIAL, arms=(arm, TRIAL.arms[0]), claims=(DifferentParameters("rare", "one", 1e-6),), max_looks=1
    )
    outcome = run_trial(trial, tmp_path, lambda piece: [])
    assert outcome.runs.runs["rare", ENV][0].config["envs"] == 2
    assert thespis.load(outcome.runs.runs["one", ENV][0].path).config["envs"] == 4


@pytest.mark.slow
def test_an_arm_may_have_its_own_number_of_steps(tmp_path):
    short = dataclasses.replace(
        TRIAL, arms=(Arm("one", SMALL), Arm("two", SMALL, steps=320), *TRIAL.arms[2:]), max_looks=1
    )
    declared = short.declaration()["arms"]
    assert declared["two"]["steps"] == 320 and "steps" not in declared["one"]
    assert short.digest != TRIAL.digest
    runs = run_trial(short, tmp_path, lambda piece: []).runs.runs
    assert [runs[name, ENV][0].config["steps"] for name in ("one", "two")] == [640, 320]
