"""Mixed feeds and feedbacks with data of their own: exact shares, equal bits in both loops, exact resume, errors."""

from __future__ import annotations

import dataclasses
import functools
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from method_cases import CASES
from small_envs import HostEnvAdapter

from thespis.core.errors import UserError
from thespis.core.laws.assertions import assert_same_bits, to_numpy
from thespis.core.laws.random_samples import random_transitions
from thespis.core.records import Report, Rewards, Transition
from thespis.curricula.fixed import FixedCurriculum
from thespis.curricula.tasks import Tasks
from thespis.data.datasets import transitions_to_columns, write_dataset
from thespis.data.feeds import LoggedTransitions, Replay
from thespis.data.mix import Mix, mix
from thespis.data.prioritized import PrioritizedSampler
from thespis.feedback.adversarial import AIRL, GAIL
from thespis.feedback.environment import EnvironmentReward
from thespis.feedback.sqil import SQIL
from thespis.methods.online.ppo import PPO
from thespis.methods.online.sac import SAC
from thespis.runs import checkpoint
from thespis.runs.config import from_config, to_config
from thespis.training.assembly import load_feed_data
from thespis.training.compiled_loop import CompiledLoop
from thespis.training.components import Components
from thespis.training.host_loop import HostLoop
from thespis.training.policy_lag import FixedLag

ENV, ENVS, SEEDS = CASES["sac"].env, 3, [0, 4]
DEMO_REWARD = 100.0
OWN = Replay(buffer_size=60, batch_size=8, learning_starts=9, update_interval=2, num_updates=2, num_envs=ENVS)


def demonstrations(length: int = 50) -> Transition:
    """Random steps ``[time]`` of the environment with a reward of their own."""
    steps = jax.tree.map(
        lambda x: np.asarray(x)[:, 0], random_transitions(ENV.spec, np.random.default_rng(1), length, 1)
    )
    return dataclasses.replace(steps, reward=np.full(length, DEMO_REWARD, "float32"))


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> str:
    directory, spec = tmp_path_factory.mktemp("demos") / "data", ENV.spec
    metadata = {"env": spec.name, "observation": spec.observation_space, "action": spec.action_space}
    write_dataset(directory, transitions_to_columns(spec, demonstrations()), metadata)
    return str(directory)


def with_data(method, feedback=None) -> Components:
    parts = Components(method, feedback or EnvironmentReward(), FixedCurriculum())
    return dataclasses.replace(parts, data=load_feed_data(parts, None))


def make_loop(kind: str, parts: Components):
    if kind == "compiled":
        return CompiledLoop(parts, ENV, ENVS, SEEDS, 1_000)
    return HostLoop(parts, HostEnvAdapter(ENV, ENVS, SEEDS), ENVS, SEEDS, 1_000, FixedLag(0))


def sac(feed) -> SAC:
    return SAC(hidden_sizes=(4,), feed=feed)


def with_demonstrations(feed: Replay, data: str, share: float) -> Replay:
    return dataclasses.replace(feed, demos=data, demo_share=share)


def ppo() -> PPO:
    return dataclasses.replace(CASES["ppo"].method, hidden_sizes=(4,))


FAST = ("gail", "sac-mix-prioritized")
CASES_WITH_DATA = {
    "sac-mix": lambda data: (sac(with_demonstrations(OWN, data, 0.25)), None),
    "sac-mix-prioritized": lambda data: (
        sac(with_demonstrations(dataclasses.replace(OWN, sampler=PrioritizedSampler()), data, 0.5)),
        None,
    ),
    "sqil": lambda data: (sac(with_demonstrations(OWN, data, 0.5)), SQIL()),
    "gail": lambda data: (ppo(), GAIL(data, batch_size=4, num_updates=3, hidden_sizes=(4,))),
    "airl": lambda data: (ppo(), AIRL(data, batch_size=4, num_updates=3, hidden_sizes=(4,))),
    "dac": lambda data: (
        sac(OWN),
        GAIL(
            data,
            batch_size=4,
            num_updates=1,
            hidden_sizes=(4,),
            reward="logit",
            gradient_penalty=10.0,
            absorbing_states=True,
        ),
    ),
}


@pytest.fixture(scope="module")
def loops(data):
    """The loop of a kind and a case, whose programs several tests run."""
    return functools.cache(lambda kind, name: make_loop(kind, with_data(*CASES_WITH_DATA[name](data))))


@pytest.mark.parametrize("name", [n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in CASES_WITH_DATA])
def test_both_loops_agree_and_resume_exactly(name, loops, data, tmp_path):
    compiled, host = loops("compiled", name), loops("host", name)
    end, other = compiled.advance(compiled.init(), 8), host.advance(host.init(), 8)
    ours, theirs = compiled.learner_state(end), host.learner_state(other)
    assert_same_bits((ours.method, ours.feedback), (theirs.method, theirs.feedback), "both loops")
    half = compiled.advance(compiled.init(), 5)
    checkpoint.save(tmp_path / "a.ckpt", compiled.snapshot(half), {})
    restored, _ = compiled.restore(checkpoint.load(tmp_path / "a.ckpt", compiled.checkpoint_template())[0])
    assert_same_bits(compiled.learner_state(compiled.advance(restored, 3)), ours, "resumed")
    assert_same_bits(
        compiled.components.data, with_data(*CASES_WITH_DATA[name](data)).data, "data is read again as it was"
    )


@pytest.mark.parametrize("share, rows", [(0.25, 2), (0.5, 4), (0.875, 7)])
def test_shares_are_exact_and_sources_are_named(share, rows, data):
    feed = with_demonstrations(OWN, data, share)
    store, samplers = feed.make_store(1_000), with_data(sac(feed)).data.method
    steps = random_transitions(ENV.spec, np.random.default_rng(0), 20, ENVS)
    state = store.add(store.init(jax.tree.map(lambda x: x[0, 0], steps), ENVS), steps, jnp.int32(0))
    for seed in range(5):
        batch = store.sample(state, steps, (), jnp.int32(20), jnp.int32(0), jax.random.key(seed), samplers)
        is_demo = np.asarray(batch.steps.reward == DEMO_REWARD)
        assert (
            is_demo[:, :rows].all()
            and not is_demo[:, rows:].any()
            and batch.sources == (("demos", rows), ("own", 8 - rows))
        )
        assert (np.asarray(batch.source("demos").steps.reward) == DEMO_REWARD).all()
        np.testing.assert_array_equal(batch.source("own").steps.reward, batch.steps.reward[:, rows:])
        stored = {x.tobytes() for x in np.asarray(steps.view.observation).reshape(-1, 3)}
        assert all(x.tobytes() in stored for x in np.asarray(batch.source("own").steps.view.observation).reshape(-1, 3))
    with pytest.raises(KeyError, match="no source 'human': demos, own"):
        batch.source("human")


@pytest.mark.slow
def test_demonstrations_have_no_level_beside_the_tasks_of_a_curriculum(data):
    """Their rows get the level -1, and rows of the run the number of the task that was played."""
    parts = with_data(sac(with_demonstrations(OWN, data, 0.5)))
    parts = dataclasses.replace(parts, curriculum=Tasks(("push=0.1", "push=0.4")))
    loop = make_loop("compiled", parts)
    end = loop.advance(loop.init(), 8)
    assert np.all(np.asarray(to_numpy(loop.learner_state(end).method.num_updates)) > 4)
    store = parts.method.feed.make_store(1_000)
    state = jax.tree.map(lambda x: x[0], end.learner.store)
    rollout = jax.tree.map(lambda x: x[None], demonstrations(2))
    batch = store.sample(state, rollout, (), jnp.int32(16), jnp.int32(0), jax.random.key(0), parts.data.method)
    assert np.all(batch.source("demos").steps.level == -1)
    assert set(np.asarray(batch.source("own").steps.level).ravel().tolist()) <= {0, 1}


def test_priorities_reach_the_source_that_was_sampled(data):
    """The own rows' priorities change the sum tree as without a mix; those of demonstrations change nothing."""
    own = dataclasses.replace(OWN, sampler=PrioritizedSampler(alpha=1.0))
    feed = with_demonstrations(own, data, 0.5)
    store, samplers = feed.make_store(1_000), with_data(sac(feed)).data.method
    steps = random_transitions(ENV.spec, np.random.default_rng(0), 4, ENVS)
    state = store.add(store.init(jax.tree.map(lambda x: x[0, 0], steps), ENVS), steps, jnp.int32(0))
    batch = store.sample(state, steps, (), jnp.int32(4), jnp.int32(0), jax.random.key(0), samplers)
    assert (np.asarray(batch.weights[:4]) == 1).all()
    revised = store.revise(store.revisable(state), batch, Report({}, jnp.arange(1.0, 9.0)))
    alone = dataclasses.replace(own, batch_size=4).make_store(1_000)
    expected = alone.revise(alone.revisable(state["own"]), batch.source("own"), Report({}, jnp.arange(5.0, 9.0)))
    assert_same_bits(revised["own"], expected, "priorities")
    assert revised["demos"] == ()


def test_sqil_rewards_demonstrations_alone(data):
    feed = with_demonstrations(OWN, data, 0.5)
    store, samplers = feed.make_store(1_000), with_data(sac(feed)).data.method
    steps = random_transitions(ENV.spec, np.random.default_rng(0), 4, ENVS)
    state = store.add(store.init(jax.tree.map(lambda x: x[0, 0], steps), ENVS), steps, jnp.int32(0))
    batch = store.sample(state, steps, (), jnp.int32(4), jnp.int32(0), jax.random.key(0), samplers)
    rewards = SQIL().score((), batch, jax.random.key(0)).total
    np.testing.assert_array_equal(rewards, (np.asarray(batch.steps.reward) == DEMO_REWARD).astype("float32"))
    with pytest.raises(UserError, match="mix demonstrations into the replay"):
        SQIL().score((), dataclasses.replace(batch, sources=()), jax.random.key(0))


@pytest.mark.long
def test_more_batches_of_its_own_are_more_updates_of_the_feedback(loops):
    """Three updates of the discriminator after each update of the method, counted by its optimizer."""
    loop = loops("compiled", "gail")
    opt_state = to_numpy(loop.learner_state(loop.advance(loop.init(), 2)).feedback.opt_state)
    counts = [leaf for leaf in jax.tree.leaves(opt_state) if np.issubdtype(leaf.dtype, np.integer)]
    assert counts and (np.stack(counts) == 2 * 3).all()


class Remembers(eqx.Module):
    """A feedback whose state holds the first observations of its last own batches."""

    data: str = eqx.field(static=True)
    name: ClassVar[str] = "remembers"
    citations: ClassVar[tuple] = ()

    @property
    def feed(self):
        return LoggedTransitions(batch_size=4, data=self.data, num_updates=3)

    def init(self, spec, key):
        return jnp.zeros((6, 4))

    def score(self, state, batch, key):
        return Rewards(batch.steps.reward)

    def update(self, state, batch, own_batch, key):
        assert (own_batch.steps.reward.shape, batch.steps.reward.shape) == ((1, 4), (8, ENVS))
        seen = own_batch.steps.view.observation[0, :, 0]
        return jnp.concatenate([state[1:], seen[None]]), Report({})


@pytest.mark.long
def test_every_update_of_a_feedback_sees_another_batch_of_its_own(data):
    loop = make_loop("compiled", with_data(ppo(), Remembers(data)))
    seen = to_numpy(loop.learner_state(loop.advance(loop.init(), 2)).feedback)
    stored = np.unique(np.asarray(demonstrations().view.observation)[:, 0])
    assert np.isin(seen, stored).all()
    for one in seen:
        assert len(np.unique(one, axis=0)) == 6, "three batches after each of two updates, all different"


def test_settings_are_kept_in_run_files(data):
    feed = with_demonstrations(OWN, data, 0.25)
    assert from_config(to_config(sac(feed))).feed == feed


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda data: mix({"a": OWN}, {"b": 1.0}), "needs a share for each"),
        (lambda data: mix({"demos": LoggedTransitions(data=data)}, {"demos": 1.0}), "one of which collects"),
        (lambda data: with_demonstrations(OWN, data, 0.3).make_store(10), "no whole number of rows"),
        (
            lambda data: with_demonstrations(OWN, data, 0.5).make_sampler(demonstrations()),
            "demos are for learning",
        ),
        (
            lambda data: mix({"a": OWN, "b": LoggedTransitions(data=data)}, {"a": 0.5, "b": 0.25}),
            "add up to 1, not to 0.75",
        ),
        (
            lambda data: mix(
                {"a": OWN, "b": LoggedTransitions(data=data, sequence_length=2)}, {"a": 0.5, "b": 0.5}, 8
            ).make_store(10),
            "windows of different lengths",
        ),
        (lambda data: make_loop("compiled", with_data(ppo(), GAIL())), "demonstrations need a dataset"),
        (lambda data: with_data(sac(with_demonstrations(OWN, data + "x", 0.5))), "no dataset|does not exist|not found"),
    ],
)
def test_mistakes_are_one_line(make, message, data):
    with pytest.raises(UserError, match=message) as error:
        make(data)
    assert "\n" not in str(error.value)


def test_data_of_another_environment_is_refused(data):
    parts = Components(sac(with_demonstrations(OWN, data, 0.5)), EnvironmentReward(), FixedCurriculum())
    with pytest.raises(UserError, match=r"has observations of .* and those of"):
        load_feed_data(parts, "gymnax:Pendulum-v1")


def test_a_mix_without_settings_is_refused():
    with pytest.raises(UserError, match="needs sources"):
        Mix()
