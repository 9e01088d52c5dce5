"""Trials as they are run: measures of real runs, work that is never done twice, records that hold what was declared."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest

import thespis
from thespis.core.errors import UserError
from thespis.core.feeds import Rollouts
from thespis.core.records import Citation
from thespis.envs import registry
from thespis.evaluation.planner import planned_returns, random_returns
from thespis.evidence import figure, record
from thespis.evidence.claims import NOT_SHOWN, Better, Different, Same
from thespis.evidence.measures import (
    calibration_error,
    elsewhere,
    final_return,
    learning_area,
    mean_metric,
    overestimation,
    parameters,
    planned_share,
    seconds,
    seconds_to,
    steps_to,
    success_rate,
    violation,
)
from thespis.evidence.page import pages, state
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.evidence.trial import Interrupted, run_trial
from thespis.methods.online.a2c import A2C

FEED = Rollouts(length=16, envs=4)
SMALL = A2C(hidden=(8,), feed=FEED, discount=0.9)
WORLD = "gymnax:CartPole-v1"
TRIAL = Trial(
    arms=(Arm("one", SMALL), Arm("two", SMALL), Arm("fast", dataclasses.replace(SMALL, learning_rate=1e-2))),
    envs=(WORLD,),
    steps=640,
    claims=(Same("one", "two", 0.0), Different("one", "fast", 1e-6), Better("one", "two", final_return())),
    batch=2,
    looks=2,
    episodes=2,
)
PAPER = Paper(
    "made-up", "Made up", Citation("Made up", "Nobody", 2026, "none"), "tests", "Does nothing.", "Nothing.",
    ("thespis.methods.online.a2c:A2C",), "thespis train a2c --env CartPole-v1", TRIAL,
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def no_reports():
    """No pages of single runs: they take longer than the runs, and nothing here reads them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thespis.api, "write_report", lambda runs, out: out)
        yield


@pytest.fixture(scope="module", autouse=True)
def equal_arms_train_once():
    """Arms that differ in their names alone have copies of one run: that a run repeats is told elsewhere."""
    train, known = thespis.api.train, {}

    def once(method, env, out, callbacks=(), **rest):
        name = repr((method, env, rest))
        if callbacks or name not in known:
            run = train(method, env, out=out, callbacks=callbacks, **rest)
            known.setdefault(name, out)
            return run
        shutil.copytree(known[name], out)
        return thespis.load(out)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thespis.api, "train", once)
        yield


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    return run_trial(TRIAL, tmp_path_factory.mktemp("runs"), lambda piece: [])


@pytest.fixture(scope="module")
def run(outcome):
    return outcome.runs.runs["one", WORLD][0]


def test_seeds_are_added_until_the_looks_are_spent(outcome):
    assert [found.verdict for found in outcome.findings[:2]] == ["shown", "shown"]
    assert outcome.findings[2].verdict == NOT_SHOWN and outcome.findings[2].estimate == 0.5  # equal arms
    assert outcome.looks == 2 and outcome.runs.seeds() == [0, 1, 2, 3] and outcome.seconds > 0
    assert outcome.runs.scores("one", final_return()).shape == (4, 1)


@pytest.mark.slow
def test_no_seed_is_added_once_all_is_decided(tmp_path):
    trial = dataclasses.replace(TRIAL, claims=TRIAL.claims[:2])
    assert run_trial(trial, tmp_path, lambda piece: []).looks == 1


def test_what_is_finished_is_not_done_again_and_what_changed_is(outcome):
    directory = outcome.runs.runs["one", WORLD][0].path.parent
    asked = []

    def watch(piece):
        return [lambda event: asked.append((piece.arm.name, event.kind))]

    again = run_trial(TRIAL, directory, watch)
    assert again.findings == outcome.findings and not asked
    changed = (dataclasses.replace(TRIAL.arms[0], method=dataclasses.replace(SMALL, trace=0.5)), *TRIAL.arms[1:])
    run_trial(dataclasses.replace(TRIAL, arms=changed, looks=1), directory, watch)
    assert {name for name, _ in asked} == {"one"}


@pytest.mark.slow
def test_an_interrupted_trial_goes_on(tmp_path):
    import os
    import signal

    def stop(event):
        if event.kind == "metrics":
            os.kill(os.getpid(), signal.SIGINT)

    trial = dataclasses.replace(TRIAL, looks=1)
    with pytest.raises(Interrupted):
        run_trial(trial, tmp_path, lambda piece: [stop])
    straight = run_trial(trial, tmp_path / "straight", lambda piece: [])
    resumed = run_trial(trial, tmp_path, lambda piece: [])
    assert resumed.findings == straight.findings


def test_measures_of_returns(run):
    returns = np.array(run.final["greedy"]["scores"])
    np.testing.assert_array_equal(final_return().of(run), returns.mean(axis=1))
    threshold = float(np.median(returns))
    np.testing.assert_array_equal(success_rate(threshold).of(run), (returns >= threshold).mean(axis=1))


def test_measures_of_learning_curves(run):
    table = run.metrics()
    rows = [table["episode_return"][table["seed"] == seed] for seed in (0, 1)]
    known = [row[np.isfinite(row)] for row in rows]
    area = learning_area().of(run)
    assert all(row.min() <= value <= row.max() for row, value in zip(known, area, strict=True))
    np.testing.assert_array_equal(steps_to(1e9).of(run), [2 * 640, 2 * 640])
    first = steps_to(0.0).of(run)
    assert all(1 <= step <= 640 for step in first) and not steps_to(0.0).larger_is_better
    assert (seconds_to(0.0).of(run) <= seconds_to(1e9).of(run)).all()
    entropy = mean_metric("entropy").of(run)
    assert ((entropy > 0) & (entropy <= np.log(2) + 1e-6)).all()
    np.testing.assert_allclose(violation("entropy", 0.1).of(run), entropy - 0.1)
    assert (violation("entropy", 5.0).of(run) == 0).all()
    with pytest.raises(UserError, match="has no metric 'cost'"):
        mean_metric("cost").of(run)


def test_measures_of_the_critic(run):
    found = run.final["calibration"]
    bias, error = overestimation().of(run), calibration_error().of(run)
    seed = np.array(found["seed"])
    apart = np.array(found["predicted"])[seed == 1] - np.array(found["realised"], float)[seed == 1]
    assert bias[1] == pytest.approx(np.nanmean(apart)) and (error >= np.abs(bias) - 1e-9).all()


def test_parameters_are_those_of_the_policy(outcome):
    one, two = (parameters().of(outcome.runs.runs[arm, WORLD][0]) for arm in ("one", "two"))
    np.testing.assert_array_equal(one, two)
    assert one.shape[0] == 2 and not np.array_equal(one[0], one[1])


def test_the_record_holds_all_and_says_when_it_is_outdated(outcome, tmp_path):
    made = record.recorded(PAPER, False, outcome, None)
    path = record.write(tmp_path, made, figure.draw(made))
    assert path.with_suffix(".svg").read_bytes().startswith(b"<?xml")
    found = record.read(tmp_path, "made-up")
    assert found == json.loads(json.dumps(made)) and found["verdict"] == NOT_SHOWN and found["digest"] == TRIAL.digest
    assert (
        found["measures"][0]["arms"]["one"][WORLD]["scores"]
        == outcome.runs.scores("one", final_return())[:, 0].tolist()
    )
    changed = dataclasses.replace(PAPER, miniature=dataclasses.replace(TRIAL, steps=641))
    assert state(PAPER, found) == NOT_SHOWN and state(changed, found) == "outdated" and state(PAPER, None) == "none yet"
    settings = found["declaration"]["arms"]["one"]["method"]
    older = settings.pop("trace")
    assert older == A2C().trace and state(PAPER, found) == NOT_SHOWN  # a setting that came later
    settings["trace"] = older / 2
    assert state(PAPER, found) == "outdated"
    settings["trace"], settings["gone"] = older, 1
    assert state(PAPER, found) == "outdated"
    text = pages([PAPER], tmp_path)["papers/made-up.md"]
    assert "# made-up" in text and "| not shown | 0.5 |" in text
    path.write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        record.read(tmp_path, "made-up")


def test_a_measure_of_one_world_is_tabled_for_those_who_learnt_there(outcome):
    def arms(world):
        return list(record._table(TRIAL, outcome.runs, dataclasses.replace(final_return(), world=world))["arms"])

    assert arms(WORLD) == arms(None) == ["one", "two", "fast"] and arms("gymnax:Pendulum-v1") == []


def test_mistakes_in_a_declaration_are_told():
    with pytest.raises(ValueError, match="three"):
        dataclasses.replace(TRIAL, claims=(Same("one", "three", 0.0),))
    with pytest.raises(ValueError, match="directory"):
        Arm("a/b", SMALL)
    with pytest.raises(UserError, match="no full-size trial"):
        PAPER.trial(True)


@pytest.mark.slow
def test_seeds_apart_have_runs_and_clocks_of_their_own_and_end_as_together(outcome, tmp_path):
    trial = dataclasses.replace(TRIAL, arms=TRIAL.arms[:2], claims=TRIAL.claims[:1], apart=True)
    apart = run_trial(trial, tmp_path, lambda piece: []).runs
    assert [run.config["seeds"] for run in apart.runs["one", WORLD]] == [[0], [1]] and apart.seeds() == [0, 1]
    together = outcome.runs.scores("one", final_return())[:2]
    np.testing.assert_allclose(apart.scores("one", final_return()), together)
    assert trial.digest != dataclasses.replace(trial, apart=False).digest
    shared, own = outcome.runs.scores("one", seconds()), apart.scores("one", seconds())
    assert shared[0] == shared[1] and own[0] != own[1] and (own > 0).all() and not seconds().larger_is_better


@pytest.mark.slow
def test_a_run_is_played_in_its_own_world_with_other_numbers(tmp_path):
    """The probe pays 1 a step for ``limit`` steps: 10 by default, in which the run was trained."""
    run = thespis.train(SMALL, "probe:constant", steps=64, seeds=2, episodes=1, out=tmp_path / "run")
    assert final_return().of(run).tolist() == [10.0, 10.0]
    assert elsewhere(3, limit=7).of(run).tolist() == [7.0, 7.0]
    assert elsewhere(3, "sampled", limit=7).of(run).tolist() == [7.0, 7.0]
    assert elsewhere(limit=7).name == "greedy return with limit = 7"
    assert elsewhere(3, "sampled", limit=7).name == "sampled return with limit = 7"


@pytest.mark.slow
def test_where_a_run_stands_between_random_play_and_a_planner(run, tmp_path):
    """A planner plays the run's own world; a choice cannot be planned for by draws of a box."""
    fresh = thespis.train(thespis.DDPG(hidden=(8,)), "Pendulum-v1", steps=200, episodes=2, out=tmp_path / "fresh")
    world = registry.compiled("gymnax:Pendulum-v1")
    low, high = (play(world, 1, jax.random.key(0)).mean() for play in (random_returns, planned_returns))
    assert high > -400 > low
    expected = (np.mean(fresh.final["greedy"]["scores"]) - low) / (high - low)
    np.testing.assert_allclose(planned_share(1).of(fresh), expected, rtol=1e-5)
    with pytest.raises(UserError, match="one box"):
        planned_share(1).of(run)


@pytest.mark.slow
def test_an_option_of_an_arm_reaches_its_run(tmp_path):
    arm = Arm("rare", SMALL, {"envs": 2})
    trial = dataclasses.replace(TRIAL, arms=(arm, TRIAL.arms[0]), claims=(Different("rare", "one", 1e-6),), looks=1)
    outcome = run_trial(trial, tmp_path, lambda piece: [])
    assert outcome.runs.runs["rare", WORLD][0].config["envs"] == 2
    assert thespis.load(outcome.runs.runs["one", WORLD][0].path).config["envs"] == 4


@pytest.mark.slow
def test_an_arm_may_have_steps_of_its_own(tmp_path):
    short = dataclasses.replace(TRIAL, arms=(Arm("one", SMALL), Arm("two", SMALL, steps=320), *TRIAL.arms[2:]), looks=1)
    declared = short.declaration()["arms"]
    assert declared["two"]["steps"] == 320 and "steps" not in declared["one"]
    assert short.digest != TRIAL.digest
    runs = run_trial(short, tmp_path, lambda piece: []).runs.runs
    assert [runs[name, WORLD][0].config["steps"] for name in ("one", "two")] == [640, 320]
