"""Runs whose learner starts with parts of other runs, and frozen feedbacks: the same bits, resume, and refusals."""

from __future__ import annotations

import json
import shutil

import jax
import numpy as np
import pytest
from stage_cases import ON_POLICY, SHORT

import thespis
from thespis import From, Frozen
from thespis.cli.main import run as command_line
from thespis.core.errors import UserError
from thespis.core.laws.assertions import assert_same_bits, to_numpy
from thespis.core.laws.random_samples import random_transitions
from thespis.core.records import Batch
from thespis.evaluation.run_view import train_command
from thespis.feedback.combined import AddedFeedback, ChainedFeedback
from thespis.feedback.count_bonus import CountBonus
from thespis.feedback.frozen import FrozenFeedback, frozen_parts
from thespis.feedback.rnd import RandomNetworkDistillation
from thespis.runs import checkpoint
from thespis.runs.state_addresses import to_address
from thespis.training.assembly import METHOD_STATE_PATH
from thespis.training.initial_states import split_sources

RND = RandomNetworkDistillation(hidden_sizes=(8,), feature_size=4)
RUN = {"method": "ppo", "env": "probe:maze", "steps": 64, "envs": 2, "settings": ON_POLICY, "report_every": 32} | SHORT


@pytest.fixture(scope="module", autouse=True)
def no_reports():
    """Write no reports: they take longer than the runs, and no test reads them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("thespis.train_run.write_report", lambda runs, out: out)
        yield


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A run of PPO with RND's bonus."""
    return thespis.train(**RUN, feedback=RND, out=tmp_path_factory.mktemp("source") / "run")


def first_checkpoint(out, **changes):
    """Train until the first rows of metrics; the run, and a copy of it at its first checkpoint."""
    copy = out.with_name("copy")

    def stop(event):
        if event.kind == "checkpoint" and not copy.exists():
            shutil.copytree(out, copy)
        return event.kind == "metrics"

    return thespis.train(**RUN | changes, out=out, callbacks=[stop]), copy


def leaves(run, part):
    """Leaves of the oldest checkpoint's learner by their address."""
    oldest = checkpoint.list_checkpoints(run / "checkpoints")[0]
    with open(oldest, "rb") as file:
        entries = checkpoint._read_header(file, oldest)["leaves"]
    found = {e["path"]: np.zeros(e["shape"], e["dtype"]) for e in entries if e["path"].startswith("['carry'].learner")}
    found = {path: x for path, x in found.items() if path.startswith(f"['carry'].learner.{part}")}
    with open(oldest, "rb") as file:
        values = checkpoint._read_leaves(file, oldest, checkpoint._read_header(file, oldest)["leaves"], found)
    return {to_address(path.removeprefix("['carry'].learner")): value for path, value in values.items()}


@pytest.mark.long
def test_parts_of_a_run_of_another_method_are_taken_bit_by_bit(source, tmp_path):
    parts = [From(source.path, "method.network.body"), From(source.path, "method.network.critic.out")]
    run, copy = first_checkpoint(
        tmp_path / "run", method="a2c", settings=dict(list(ON_POLICY.items())[:2]), init_from=parts
    )
    new = leaves(copy, "method")
    states = {
        f"method.{to_address(jax.tree_util.keystr(k))}": x
        for k, x in jax.tree_util.tree_leaves_with_path(source.states)
    }
    taken = [name for name in new if name.startswith(("method.network.body.", "method.network.critic.out."))]
    assert len(taken) == 4 and set(taken) < set(new)
    for name in new:
        if name in taken:
            np.testing.assert_array_equal(new[name], states[name], err_msg=name)
        elif name.endswith("weight"):
            assert not np.array_equal(new[name], states[name]), name
    (body, out) = json.loads((run.path / "run.json").read_text())["init_parts"]
    assert body == {
        "to": "method.network.body",
        "run": str(source.path),
        "from": "method.network.body",
        "step": source.step,
        "checkpoint": checkpoint.checkpoint_name(source.step),
        "seeds": [0],
        "state_hash": checkpoint.hash_tree(source.states.network.body),
    }
    assert out["state_hash"] == checkpoint.hash_tree(source.states.network.critic.out)
    source.path.rename(source.path.with_name("away"))  # resuming needs no other run
    try:
        resumed = thespis.resume(copy)
    finally:
        source.path.with_name("away").rename(source.path)
    whole = thespis.train(
        **RUN | {"method": "a2c", "settings": dict(list(ON_POLICY.items())[:2])},
        init_from=parts,
        out=tmp_path / "whole",
    )
    assert_same_bits(to_numpy(resumed.states), to_numpy(whole.states), "resumed")


@pytest.mark.long
def test_a_part_can_go_to_another_address_and_a_seed_to_all(source, tmp_path):
    part = From(source.path, "method.network.body", to="method.network.critic.body")
    _, copy = first_checkpoint(tmp_path / "run", seeds=[3, 5], init_from=part)
    new = leaves(copy, "method.network")
    for name, leaf in jax.tree_util.tree_leaves_with_path(source.states.network.body):
        where = f"method.network.critic.body.{to_address(jax.tree_util.keystr(name))}"
        np.testing.assert_array_equal(new[where], np.repeat(leaf, 2, axis=0))
        other = where.replace("critic.body", "body")
        assert not where.endswith("weight") or not np.array_equal(new[other][0], new[other][1])


@pytest.mark.long
def test_a_part_replaces_what_a_whole_run_gave(source, tmp_path):
    critic = thespis.train(**RUN | {"seeds": [7]}, out=tmp_path / "other")
    parts = [source.path, From(critic.path, "method.network.critic")]
    run, copy = first_checkpoint(tmp_path / "run", init_from=parts)
    states = checkpoint.load(checkpoint.list_checkpoints(copy / "checkpoints")[0], run.states, METHOD_STATE_PATH)[0]
    assert_same_bits(to_numpy(states.network.body), to_numpy(source.states.network.body), "of the whole run")
    assert_same_bits(to_numpy(states.network.critic), to_numpy(critic.states.network.critic), "of the part")
    assert run.config["init_from"]["run"] == str(source.path) and len(run.config["init_parts"]) == 1


REFUSED = {
    "shape": (
        {"settings": ON_POLICY | {"hidden_sizes": "16"}, "init_from": ["method.network.body"]},
        r"method.network.body of \S* does not fit: method.network.body.mlp.layers.0.weight is float32\[2, 8\] there, "
        r"and is float32\[2, 16\] in the new run",
    ),
    "unknown": (
        {"init_from": ["method.netwrk"]},
        r"has no state method.netwrk: it has method.network, .*method.opt_st",
    ),
    "unknown-here": (
        {"init_from": ["method.network.body=>method.body"]},
        "the new run has no state method.body: it has method.network",
    ),
    "no-learned-feedback": ({"init_from": ["feedback"]}, "the new run has no state feedback"),
    "seeds": ({"init_from": ["method.network"], "source": "two", "seeds": 3}, "has 2 seeds and this run 3"),
    "no-run": ({"init_from": ["method"], "source": "nothing"}, "does not exist"),
    "no-checkpoint": ({"init_from": ["method"], "source": "empty"}, "has no checkpoint: train it first"),
    "no-feedback": ({"feedback": "frozen"}, "needs the run that has trained it: frozen:RUN, or feedback.run=RUN"),
    "untrained": ({"feedback": "frozen:{two}", "seeds": 2}, "two has no state feedback: it has"),
}


@pytest.fixture(scope="module")
def others(source, tmp_path_factory):
    """Runs to be refused: of two seeds and without a trained feedback, and one without checkpoints."""
    folder = tmp_path_factory.mktemp("others")
    thespis.train(**RUN | {"seeds": 2}, out=folder / "two")
    shutil.rmtree(shutil.copytree(source.path, folder / "empty") / "checkpoints")
    return folder


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused_in_one_line(name, source, others, tmp_path):
    changes, words = dict(REFUSED[name][0]), REFUSED[name][1]
    path = others / changes.pop("source") if "source" in changes else source.path
    parts = [text.partition("=>") for text in changes.get("init_from", [])]
    changes["init_from"] = [From(path, there, here or None) for there, _, here in parts]
    changes["feedback"] = changes.get("feedback", "environment").replace("{two}", str(others / "two"))
    with pytest.raises(UserError, match=words) as error:
        thespis.train(**RUN | changes, out=tmp_path / "run")
    assert "\n" not in str(error.value) and not (tmp_path / "run").exists()


def test_other_mistakes_are_refused():
    for make, words in (
        (lambda: From("runs/a", "critic"), "'critic' is no part of a learner: an address begins with method, feedback"),
        (lambda: From("runs/a", "method..x"), "is no part of a learner"),
        (lambda: From.parse("method.critic"), "it is PATH=RUN or PATH=RUN:PATH"),
        (lambda: thespis.train("ppo", "probe:maze", init_from=["runs/a", "runs/b"]), "only one run can give the whole"),
        (lambda: split_sources([3]), "init_from has a int: it is a run, or From"),
    ):
        with pytest.raises(UserError, match=words):
            make()
    assert From.parse("method.critic=runs/a") == From("runs/a", "method.critic")
    assert From.parse("feedback.1=runs/a:feedback") == From("runs/a", "feedback", "feedback.1")
    assert From.parse("method=C:/runs/a") == From("C:/runs/a", "method", "method")


@pytest.mark.long
def test_a_run_that_lost_its_parts_is_not_started_anew(source, tmp_path):
    run, _ = first_checkpoint(tmp_path / "run", init_from=From(source.path, "method.network"))
    shutil.rmtree(run.path / "checkpoints")
    with pytest.raises(UserError, match="before its initial parameters were saved: train it again"):
        thespis.resume(run.path)


@pytest.mark.slow
def test_the_command_line_takes_parts_and_frozen_feedbacks(source, tmp_path):
    words = ["train", "ppo", "--env", "probe:maze", "--steps", "64", "--envs", "2", "--episodes", "2", "--quiet"]
    words += ["--set", *(f"{name}={value}" for name, value in ON_POLICY.items()), "--out", str(tmp_path / "run")]
    words += ["--init-part", f"method.network.critic={source.path}", "--feedback", f"frozen:{source.path}"]
    assert command_line(words) == 0
    run = thespis.load(tmp_path / "run")
    feedback, critic = run.config["init_parts"]
    assert (feedback["to"], critic["to"]) == ("feedback", "method.network.critic")
    command = train_command(run.config)
    assert f"--feedback frozen:{source.path}" in command and "feedback.part" not in command
    assert f"--init-part method.network.critic={source.path}:method.network.critic" in command
    assert "--init-part feedback=" not in command


@pytest.mark.slow
def test_a_frozen_feedback_scores_as_the_trained_one_and_never_changes(source, tmp_path):
    run = thespis.train(**RUN, feedback=Frozen(source.path), out=tmp_path / "run")
    assert run.config["feedback"]["part"] == source.config["feedback"]
    before, after = leaves(source.path, "feedback"), leaves(run.path, "feedback")
    newest = leaves_of_newest(source.path)
    assert set(after) == set(newest) == set(before)
    for name, value in after.items():
        np.testing.assert_array_equal(value, newest[name], err_msg=name)
    assert any(not np.array_equal(before[name], newest[name]) for name in before)  # it was trained
    assert run.config["bibliography"] == source.config["bibliography"]
    shutil.copytree(run.path, tmp_path / "copy")
    for path in checkpoint.list_checkpoints(tmp_path / "copy" / "checkpoints")[1:]:
        path.unlink()
    source.path.rename(source.path.with_name("away"))  # nothing of the source is needed
    try:
        resumed = thespis.resume(tmp_path / "copy")
    finally:
        source.path.with_name("away").rename(source.path)
    assert_same_bits(to_numpy(resumed.states), to_numpy(run.states), "resumed")


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"loop": "host"}, {"learners": 2}, {"loop": "host", "seeds": 2}], ids=str)
def test_every_loop_starts_with_a_trained_feedback(options, source, tmp_path):
    run = thespis.train(**RUN | options, feedback=Frozen(source.path), out=tmp_path / "run")
    trained, first = leaves_of_newest(source.path), leaves(run.path, "feedback")
    for name, value in trained.items():
        np.testing.assert_array_equal(first[name], np.repeat(value, len(run.config["seeds"]), axis=0), err_msg=name)
    assert_same_bits(leaves_of_newest(run.path), first, "and keeps it")


def leaves_of_newest(run):
    saved = checkpoint.list_checkpoints(run / "checkpoints")
    copy = run.with_name("newest")
    shutil.rmtree(copy, ignore_errors=True)
    (copy / "checkpoints").mkdir(parents=True)
    shutil.copy(saved[-1], copy / "checkpoints")
    return leaves(copy, "feedback")


@pytest.mark.slow
def test_a_frozen_feedback_in_a_chain_gets_its_own_state(source, tmp_path):
    chain = ChainedFeedback((CountBonus(), Frozen(source.path)))
    run = thespis.train(**RUN, feedback=chain, out=tmp_path / "run")
    new, trained = leaves(run.path, "feedback"), leaves_of_newest(source.path)
    for name, value in trained.items():
        np.testing.assert_array_equal(new[name.replace("feedback", "feedback.1", 1)], value, err_msg=name)
    (part,) = run.config["init_parts"]
    assert (part["to"], part["from"]) == ("feedback.1", "feedback")
    again = thespis.train(**RUN, feedback=Frozen(run.path), out=tmp_path / "again")  # the whole chain, frozen
    assert again.config["feedback"]["part"] == run.config["feedback"]
    frozen = thespis.train(**RUN, feedback=f"frozen:{again.path}", out=tmp_path / "frozen")
    assert frozen.config["feedback"]["part"] == run.config["feedback"]  # frozen once, not twice


@pytest.mark.long
def test_settings_of_a_frozen_feedback_can_be_changed(source, tmp_path):
    settings = ON_POLICY | {"feedback.run": str(source.path), "feedback.part.bonus_coef": 0.25}
    run, _ = first_checkpoint(tmp_path / "run", feedback="frozen", settings=settings)
    assert run.config["feedback"] == {
        "class": "thespis.feedback.frozen:FrozenFeedback",
        "run": str(source.path),
        "part": source.config["feedback"] | {"bonus_coef": 0.25},
        "address": "feedback",
    }


def test_a_frozen_feedback_whose_state_has_no_address_is_refused(source):
    class Wrapper(CountBonus):
        inner: object = None

    with pytest.raises(UserError, match="Wrapper holds a frozen feedback: put it into a chain or a sum"):
        frozen_parts(Wrapper(inner=Frozen(source.path)))
    added = AddedFeedback((CountBonus(), ChainedFeedback((Frozen("a"), Frozen("b")))), (1.0, 1.0))
    assert {where: part.run for where, part in frozen_parts(added).items()} == {
        "feedback.1.0": "a",
        "feedback.1.1": "b",
    }


@pytest.mark.long
def test_the_class_of_a_trained_feedback_must_be_trusted(source, tmp_path):
    """Reading the other run builds its feedback: the same rules as for all runs."""
    copy = shutil.copytree(source.path, tmp_path / "copy")
    config = json.loads((copy / "run.json").read_text())
    config["feedback"]["class"] = "subprocess:Popen"
    (copy / "run.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="the run names subprocess:Popen, which is no part of Thespis"):
        thespis.train(**RUN, feedback=Frozen(copy), out=tmp_path / "run")
    thespis.train(**RUN, init_from=From(copy, "method.network"), out=tmp_path / "run")  # builds no class of the run


def test_a_frozen_feedback_gives_the_rewards_of_its_state_and_keeps_it(source):
    frozen, keys = FrozenFeedback("runs/a", RND), jax.random.split(jax.random.key(0))
    steps = random_transitions(source.spec, np.random.default_rng(0), 4, 2)
    batch = jax.device_put(Batch(steps, np.ones((4, 2), bool), (), np.zeros((), "int32")))
    state = jax.jit(lambda: RND.update(RND.init(source.spec, keys[0]), batch, None, keys[1])[0])()
    rewards = frozen.score(state, batch, keys[0]).total
    np.testing.assert_array_equal(rewards, RND.score(state, batch, keys[0]).total)
    assert not np.array_equal(rewards, batch.steps.reward)
    after, report = frozen.update(state, batch, None, keys[1])
    assert after is state and frozen.feed is None
    np.testing.assert_allclose(report.metrics["reward"], rewards.mean(), rtol=1e-5)
