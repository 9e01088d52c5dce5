"""Runs that start with the parameters of another run, in every loop."""

from __future__ import annotations

import json
import shutil

import jax
import numpy as np
import pytest
from test_more_steps import CASES, STEPS, train

import thespis
from thespis.core.errors import UserError
from thespis.core.laws.assertions import assert_same_bits, to_numpy
from thespis.runs import checkpoint
from thespis.training.assembly import METHOD_STATE_PATH


@pytest.fixture(scope="module", autouse=True)
def no_reports():
    """Write no reports: they take longer than the runs, and no test reads them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("thespis.train_run.write_report", lambda runs, out: out)
        yield


class FinishedRuns(dict):
    """A finished run of each case, trained when it is first asked for."""

    def __init__(self, folder):
        super().__init__()
        self._folder = folder

    def __missing__(self, name):
        self[name] = train(name, STEPS, self._folder / name)
        return self[name]


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    return FinishedRuns(tmp_path_factory.mktemp("sources"))


def start_from(name, source, out, steps=STEPS, **changes):
    """Train a case from the parameters of a run."""
    method, env, options = CASES[name]
    options = {"checkpoint_seconds": 0.0, "report_every": 16} | options | changes
    return thespis.train(method, env, steps=steps, out=out, episodes=2, init_from=source, **options)


def first_states(out, like):
    return checkpoint.load(out / "checkpoints" / checkpoint.checkpoint_name(0), like, METHOD_STATE_PATH)[0]


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [pytest.param("on-policy", marks=pytest.mark.slow), pytest.param("host-loop", marks=pytest.mark.slow), "data"],
)
def test_the_first_checkpoint_holds_the_parameters_of_the_other_run(name, sources, tmp_path):
    source, out = sources[name], tmp_path / "run"
    states = []

    def keep(event):
        if event.kind == "checkpoint":
            shutil.copytree(out, tmp_path / f"copy{len(states)}")
            states.append(event.step)

    run = start_from(name, source.path, out, callbacks=[keep])
    assert states[0] == 0 and run.step > 0
    assert_same_bits(
        to_numpy(first_states(tmp_path / "copy0", source.states)), to_numpy(source.states), "initial parameters"
    )
    written = json.loads((out / "run.json").read_text())["init_from"]
    newest = checkpoint.checkpoint_name(source.step)
    assert written == {
        "run": str(source.path),
        "step": source.step,
        "checkpoint": newest,
        "seeds": source.config["seeds"],
        "state_hash": checkpoint.hash_tree(source.states),
    }
    resumed = thespis.resume(tmp_path / "copy0")  # needs no other run
    assert_same_bits(to_numpy(resumed.states), to_numpy(run.states), "resuming")
    assert any(
        not np.array_equal(a, b)
        for a, b in zip(jax.tree.leaves(run.states), jax.tree.leaves(source.states), strict=True)
    )


@pytest.mark.slow
def test_a_run_of_one_seed_starts_all_seeds(sources, tmp_path):
    stop = [lambda event: event.kind == "metrics"]
    source = sources["on-policy"]
    run = start_from("on-policy", source.path, tmp_path / "run", seeds=3, callbacks=stop)
    states = first_states(run.path, run.states)
    for new, old in zip(jax.tree.leaves(states), jax.tree.leaves(source.states), strict=True):
        np.testing.assert_array_equal(new, np.repeat(old, 3, axis=0))


def test_another_optimizer_starts_anew_with_a_warning(sources, tmp_path):
    messages = []

    def keep(event):
        if event.kind == "warning":
            messages.append(event.data["message"])
        return event.kind == "metrics"

    settings = CASES["data"][2]["settings"] | {
        "optimizer": "OptaxOptimizer",
        "optimizer.call": "sgd(momentum=0.9)",
    }
    run = start_from("data", sources["data"].path, tmp_path / "run", settings=settings, callbacks=[keep])
    assert any("the optimizer starts anew" in message for message in messages)
    states = first_states(run.path, run.states)
    np.testing.assert_array_equal(
        np.asarray(jax.tree.leaves(states.network)[0]), np.asarray(jax.tree.leaves(sources["data"].states.network)[0])
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        (
            "on-policy",
            {"settings": {"num_steps": 16, "hidden_sizes": "16"}},
            r"does not fit: .*float32\[1, 2, 8\] there, expected float32\[1, 2, 16\]",
        ),
        pytest.param(
            "on-policy",
            {"seeds": 1, "envs": 2, "source": "host-loop"},
            "was trained by dqn, not by ppo",
            marks=pytest.mark.slow,
        ),
        ("host-loop", {"seeds": 3}, "has 2 seeds and this run 3"),
        ("on-policy", {"source": None}, "does not exist"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(name, changes, words, sources, tmp_path):
    source = changes.pop("source", name)
    path = tmp_path / "nothing" if source is None else sources[source].path
    with pytest.raises(UserError, match=words) as error:
        start_from(name, path, tmp_path / "run", **changes)
    assert "\n" not in str(error.value) and not (tmp_path / "run").exists()


@pytest.mark.long
def test_asynchronous_learners_all_start_with_the_parameters(sources, tmp_path):
    stop = [lambda event: event.kind == "metrics"]
    run = start_from("on-policy", sources["on-policy"].path, tmp_path / "run", learners=2, callbacks=stop)
    states = first_states(run.path, run.states)
    assert_same_bits(to_numpy(states), to_numpy(sources["on-policy"].states), "initial parameters")


def test_a_run_that_lost_its_parameters_is_not_started_anew(sources, tmp_path):
    run = start_from("data", sources["data"].path, tmp_path / "run", steps=2)
    shutil.rmtree(run.path / "checkpoints")
    with pytest.raises(UserError, match="before its initial parameters were saved: train it again"):
        thespis.resume(run.path)
