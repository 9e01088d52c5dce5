"""Feedbacks for text: their laws, every loop bit by bit, sums and frozen ones, and environments that they refuse."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_dialogues import KEY, make_dialogues
from small_envs import HostEnvAdapter, Walk
from synthetic_batches import QUICK

import thespis
from thespis.cli.part_inspection import env_kind_of
from thespis.core.contracts import Feedback, FitsMethod
from thespis.core.errors import UserError
from thespis.core.laws.assertions import assert_same_bits, to_numpy
from thespis.core.laws.components import check_feedback
from thespis.core.laws.random_samples import random_transitions
from thespis.core.parts import Part, load_own_part
from thespis.core.records import Batch
from thespis.curricula.fixed import FixedCurriculum
from thespis.data.feeds import Episodes, Replay, Rollouts
from thespis.envs.text.maze import Maze
from thespis.envs.text.registry import make_text_env
from thespis.envs.text.task import TextEnv
from thespis.feedback.adversarial import GAIL, dac
from thespis.feedback.combined import AddedFeedback, ChainedFeedback, map_parts
from thespis.feedback.env_kind import check_env_kind, check_feedback_fits
from thespis.feedback.environment import EnvironmentReward
from thespis.feedback.frozen import Frozen, FrozenFeedback
from thespis.feedback.implicit_reward import ImplicitProcessReward
from thespis.feedback.process_reward import ProcessReward
from thespis.feedback.progress_attribution import ProgressAttribution
from thespis.feedback.registry import FEEDBACKS as FEEDBACKS_BY_NAME
from thespis.feedback.response_discriminator import ResponseDiscriminator
from thespis.feedback.response_length import ResponseLength
from thespis.feedback.rnd import RandomNetworkDistillation
from thespis.methods.language.grpo import GRPO
from thespis.methods.online.ppo import PPO
from thespis.runs import checkpoint
from thespis.runs.config import from_config
from thespis.runtime import keys
from thespis.training.assembly import load_feed_data
from thespis.training.compiled_loop import CompiledLoop
from thespis.training.components import Components
from thespis.training.host_loop import HostLoop
from thespis.training.policy_lag import FixedLag

ENV = TextEnv(Maze(size=2, max_turns=3))
MODEL = {"model": "blank", "num_layers": 1, "hidden_size": 32}
METHOD = GRPO(**MODEL, minibatch_size=3, feed=Episodes(3, group_size=3, num_envs=3))
PROCESS = ProcessReward(buffer_size=7, num_gradient_steps=2, batch_size=4, num_warmup_batches=1)
DISCRIMINATOR = ResponseDiscriminator(data="demonstrations:5", batch_size=3)
ATTRIBUTION = ProgressAttribution(num_warmup_batches=1)
LENGTH = ResponseLength(token_cost=0.125, num_free_tokens=1)
FEEDBACKS = {
    "length": LENGTH,
    "process rewards": PROCESS,
    "discriminator": DISCRIMINATOR,
    "attribution": ATTRIBUTION,
    "implicit rewards": ImplicitProcessReward(),
    "sum": AddedFeedback((PROCESS, LENGTH), (1.0, 0.5)),
    "chain": ChainedFeedback((LENGTH, ATTRIBUTION)),
    "frozen": FrozenFeedback("runs/rm", PROCESS),
}


def fitted(feedback):
    """The feedback with the language model of the method."""
    if isinstance(feedback, FrozenFeedback):
        return FrozenFeedback(feedback.run, fitted(feedback.part))
    return map_parts(feedback, lambda part: part.for_method(METHOD) if isinstance(part, FitsMethod) else part)


@pytest.mark.parametrize("name", ["length", *(pytest.param(n, marks=pytest.mark.laws) for n in list(FEEDBACKS)[1:])])
def test_laws(name):
    feedback = fitted(FEEDBACKS[name])
    assert isinstance(feedback, Feedback)
    check_feedback(feedback, ENV.spec)


def test_every_token_of_a_response_has_its_cost():
    """Rows whose first response has one token; the second has two, and a third there is none."""
    dialogues = make_dialogues([3, 8, 4])
    responses = np.array(dialogues.responses)
    responses[0, :, 1] = -1
    dialogues = dataclasses.replace(dialogues, responses=jax.device_put(responses))
    costs = [np.asarray(part.score_turns((), dialogues, KEY)) for part in (LENGTH, ResponseLength(token_cost=0.5))]
    np.testing.assert_array_equal(costs[0], [[0.0] * 3, [-0.125] * 3, [0.0] * 3])
    np.testing.assert_array_equal(costs[1], [[-0.5] * 3, [-1.0] * 3, [0.0] * 3])


def test_a_sum_of_text_feedbacks_adds_their_rewards():
    steps = random_transitions(ENV.spec, np.random.default_rng(0), 3, 4)
    batch = Batch(steps, jnp.ones((3, 4), bool), (), jnp.zeros((), "int32"))
    feedback = AddedFeedback((EnvironmentReward(), LENGTH), (2.0, 0.5))
    rewards = jax.jit(feedback.score)(((), ()), batch, KEY)
    num_tokens = (np.asarray(steps.action) >= 0).sum(axis=-1)
    lengths = -0.125 * np.maximum(num_tokens - 1, 0)
    np.testing.assert_allclose(rewards.total, 2.0 * np.asarray(steps.reward) + 0.5 * lengths, rtol=1e-6)
    np.testing.assert_allclose(rewards.channels["response-length"], lengths, rtol=1e-6)


# -- loops ----------------------------------------------------------------------------------------------


SEEDS, ENVS, STEPS, BEFORE, AFTER = [0, 3], 3, 1000, 3, 3
LEARNED = [pytest.param(name, marks=pytest.mark.laws) for name in ("process rewards", "discriminator", "sum")]


def make_components(name: str) -> Components:
    parts = Components(METHOD, fitted(FEEDBACKS[name]), FixedCurriculum())
    return dataclasses.replace(parts, data=load_feed_data(parts, ENV))


@pytest.fixture
def quick_keys(monkeypatch):
    """Keys with a short hash, which are compiled sooner."""
    monkeypatch.setattr(keys, "THREEFRY", QUICK)


@pytest.mark.parametrize("name", LEARNED)
def test_loops_and_resumed_runs_have_the_same_bits(name, quick_keys, tmp_path):
    """GRPO with a learned feedback: compiled as host, resumed as uninterrupted, alone as beside another seed."""
    ends = {}
    parts = make_components(name)
    loops = {
        "compiled": CompiledLoop(parts, ENV, ENVS, SEEDS, STEPS),
        "host": HostLoop(parts, HostEnvAdapter(ENV, ENVS, SEEDS, 3), ENVS, SEEDS, STEPS, FixedLag(0)),
    }
    for kind, loop in loops.items():
        carry = loop.advance(loop.init(), BEFORE)
        path = tmp_path / kind
        checkpoint.save(path, loop.snapshot(carry), {})
        snapshot = checkpoint.load(path, loop.snapshot(carry))[0]
        before = to_numpy(loop.learner_state(carry).feedback)
        carry = loop.advance(carry, AFTER)
        ends[kind] = to_numpy((loop.learner_state(carry), carry.metric_sums))
        moved = jax.tree.map(lambda a, b: np.any(a != b), before, ends[kind][0].feedback)
        assert any(jax.tree.leaves(moved)), "the feedback learns"
        restored, _ = loop.restore(snapshot)
        restored = loop.advance(restored, AFTER)
        resumed = to_numpy((loop.learner_state(restored), restored.metric_sums))
        assert_same_bits(ends[kind], resumed, f"the {kind} loop resumes")
    assert_same_bits(ends["compiled"], ends["host"], "compiled equals host")
    single = CompiledLoop(parts, ENV, ENVS, SEEDS[1:], STEPS)
    alone = to_numpy(single.learner_state(single.advance(single.init(), BEFORE + AFTER)))
    in_batch = jax.tree.map(lambda x: x[1:], ends["compiled"][0])
    assert_same_bits(alone, in_batch, "a seed alone")


# -- runs -----------------------------------------------------------------------------------------------


RUN = {"env": "text:maze", "steps": 96, "evaluate_every": 0, "episodes": 2, "preset": None}
SETTINGS = MODEL | {"feed.group_size": 4, "feed.num_envs": 4, "minibatch_size": 4}


@pytest.mark.slow
def test_a_trained_process_reward_is_found_by_name_frozen_and_summed(tmp_path):
    """A run by name; its trained reward in a sum with a cost of tokens; the frozen part stays as it was trained."""
    first = thespis.train(
        "grpo",
        **RUN,
        settings=SETTINGS | {"feedback.num_warmup_batches": 1},
        feedback="process-reward",
        out=tmp_path / "a",
    )
    config = first.config["feedback"]
    assert config["model"] == "blank" and config["hidden_size"] == 32, "the method's model is in the run"
    with open(tmp_path / "a" / "metrics.csv") as file:
        assert float(list(csv.DictReader(file))[-1]["feedback_process_loss"]) > 0
    feedback = AddedFeedback((Frozen(first.path), LENGTH), (1.0, 0.5))
    second = thespis.train("grpo", **RUN, settings=SETTINGS, feedback=feedback, out=tmp_path / "b")
    trained, kept = (
        {path: value for path, value in learner_leaves(run).items() if ".feedback" in path and "model" in path}
        for run in (first, second)
    )
    assert trained and len(trained) == len(kept)
    for value, same in zip(trained.values(), kept.values(), strict=True):
        np.testing.assert_array_equal(value, same)


@pytest.mark.slow
def test_a_feedback_may_start_with_the_model_of_a_run(tmp_path, monkeypatch):
    """The first seed's model of a run is where the feedback begins, whatever model the method has."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first = thespis.train("grpo", **RUN, settings=SETTINGS, out=tmp_path / "a")
    feedback = ProcessReward(model=str(first.path), learning_rate=0.0, num_warmup_batches=1)
    other = SETTINGS | {"hidden_size": 64}
    second = thespis.train("grpo", **RUN, settings=other, feedback=feedback, out=tmp_path / "b")
    assert (Path(second.config["feedback"]["model"]) / "config.json").exists()
    kept = [x for path, x in learner_leaves(second).items() if ".feedback.model.model." in path]
    for value, same in zip(kept, jax.tree.leaves(first.states.model.model), strict=True):
        np.testing.assert_array_equal(value, same)


def learner_leaves(run) -> dict[str, np.ndarray]:
    """Leaves of the newest checkpoint's learner by path."""
    path = checkpoint.list_checkpoints(run.path / "checkpoints")[-1]
    with open(path, "rb") as file:
        entries = checkpoint._read_header(file, path)["leaves"]
        like = {e["path"]: checkpoint.empty_array(e) for e in entries if e["path"].startswith("['carry'].learner")}
        return checkpoint._read_leaves(file, path, entries, like)


@pytest.mark.slow
def test_logged_dialogues_are_scored_too(tmp_path):
    """A method that learns from data gets the rewards of a feedback for text, in every update."""
    feedback = AddedFeedback((EnvironmentReward(), PROCESS), (1.0, 0.5))
    feedback = map_parts(feedback, lambda part: dataclasses.replace(part, buffer_size=32) if part is PROCESS else part)
    settings = MODEL | {"feed.batch_size": 5, "critic.num_critic_pretrain_updates": 2}
    run = thespis.train(
        "a-lol", "text:maze", data="demonstrations:20", feedback=feedback, settings=settings, steps=4, episodes=2,
        report_every=1, out=tmp_path / "run",
    )  # fmt: skip
    losses = run.metrics()["feedback_process-reward_process_loss"]
    assert len(losses) == 4 and np.isfinite(losses).all() and losses[0] > 0


# -- environments that are refused ------------------------------------------------------------------------


@pytest.mark.parametrize("feedback", [LENGTH, PROCESS, AddedFeedback((EnvironmentReward(), LENGTH), (1.0, 1.0))])
def test_feedbacks_for_text_refuse_other_environments_in_one_line(feedback):
    parts = Components(PPO(hidden_sizes=(8,)), feedback, FixedCurriculum())
    with pytest.raises(UserError, match=r"scores dialogues, and .* is a control environment") as error:
        CompiledLoop(parts, Walk(), 2, [0], 64).init()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "feedback",
    [
        GAIL(data="runs/experts"),
        dac(),
        RandomNetworkDistillation(),
        ChainedFeedback((EnvironmentReward(), RandomNetworkDistillation())),
        FrozenFeedback("runs/rm", RandomNetworkDistillation()),
    ],
    ids=lambda feedback: feedback.name,
)
def test_feedbacks_for_boxes_refuse_text_in_one_line(feedback):
    with pytest.raises(UserError, match=r"reads boxes and choices, and .* is a text environment") as error:
        check_feedback_fits(feedback, METHOD.feed, ENV.spec)
    assert "\n" not in str(error.value)


def test_parts_of_dialogues_are_refused():
    check_feedback_fits(LENGTH, Episodes(), ENV.spec)
    check_feedback_fits(EnvironmentReward(), Rollouts(8), ENV.spec)
    for feed in (Rollouts(8), Replay()):
        with pytest.raises(UserError, match="scores whole dialogues, and the method learns from parts of them"):
            check_feedback_fits(LENGTH, feed, ENV.spec)


@pytest.mark.parametrize("name", FEEDBACKS_BY_NAME)
def test_the_list_says_for_which_environments_a_feedback_is(name):
    """What the source says without an import is what the class says."""
    path = FEEDBACKS_BY_NAME[name]
    target = load_own_part("feedback", path)
    cls = target if isinstance(target, type) else type(target())
    assert env_kind_of(Part("feedback", name, path)) == vars_of(cls).get("env_kind", "any")


def vars_of(cls: type) -> dict:
    """Attributes of a class and of its bases."""
    return {name: value for base in reversed(cls.__mro__) for name, value in vars(base).items()}


def test_text_of_many_agents_is_refused():
    with pytest.raises(UserError, match=r"scores dialogues of one agent, and .* has many agents"):
        check_env_kind(LENGTH, make_text_env("kuhn-duel").spec)


def test_a_feedback_needs_a_model_of_its_own_where_the_method_has_none():
    ppo = PPO(hidden_sizes=(8,))
    assert PROCESS.for_method(ppo) == PROCESS
    with pytest.raises(UserError, match=r"needs a language model, .* set feedback\.model \(tiny"):
        PROCESS.init(ENV.spec, KEY)
    own = dataclasses.replace(PROCESS, model="blank", hidden_size=64)
    assert own.for_method(METHOD).hidden_size == 64 and own.for_method(METHOD).num_layers == 1


@pytest.mark.parametrize(("env", "feedback"), [("probe:constant", "response-length"), ("text:maze", "rnd")])
def test_runs_with_the_wrong_kind_of_feedback_do_not_start(env, feedback, tmp_path):
    method = "ppo" if env.startswith("probe") else "grpo"
    settings = None if method == "ppo" else SETTINGS
    with pytest.raises(UserError, match="thespis list feedback says what works where"):
        thespis.train(method, env, feedback=feedback, settings=settings, preset=None, steps=64, out=tmp_path / "run")


def test_runs_with_rewards_in_the_method_are_refused_in_one_line():
    """As earlier versions had them: the class is found under its new name, and what to do is said."""
    part = {"class": "thespis.learners.language.process_reward:ProcessRewardModel", "buffer_size": 9}
    with pytest.raises(UserError, match=r"ProcessReward is no transform .* rewards are feedback \(--feedback") as error:
        from_config({"class": "thespis.methods.language.ppo_lm:LanguagePPO", "rollout_transform": part})
    assert "\n" not in str(error.value)
    old = {"class": "thespis.learners.language.discriminator:Discriminator", "expert_data": "runs/e", "max_reward": 2.0}
    assert from_config(old) == ResponseDiscriminator(data="runs/e", max_reward=2.0)
