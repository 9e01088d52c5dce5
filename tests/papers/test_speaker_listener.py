"""Speaker-listener environment against its rules written out in NumPy, and the measure of its words."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thespis
from thespis.core.errors import UserError
from thespis.core.laws.components import check_environment
from thespis.data.feeds import Replay
from thespis.methods.multi_agent.maddpg import MADDPG
from thespis.methods.online.ddpg import DDPG
from thespis.papers.maddpg.envs import TARGET_VISIBLE, SpeakerListener
from thespis.papers.maddpg.measures import unnamed_targets

CORNERS = np.array([[-0.8, -0.6], [0.8, -0.6], [0.0, 0.8]])
DIRECTIONS = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]])


@pytest.mark.parametrize("env", [SpeakerListener(), TARGET_VISIBLE], ids=["words", "target"])
def test_contract(env):
    check_environment(env)


@pytest.mark.parametrize("visible", [False, True])
def test_episode_follows_the_rules(visible):
    env = SpeakerListener(target_visible=visible)
    rng = np.random.default_rng(3)
    state, first = env.reset((), jax.random.key(7))
    target, position = int(state.target), np.asarray(state.position, np.float64)
    assert np.all(np.abs(position) <= 1)
    hint = np.eye(3)[target] if visible else np.zeros(3)
    np.testing.assert_allclose(first.observation["listener"], [[*position, *hint]], rtol=1e-6)
    for time in range(1, 13):
        word, move = rng.integers(3), rng.integers(5)
        actions = {"speaker": jnp.array([word]), "listener": jnp.array([move])}
        state, timestep = env.step(state, actions, jax.random.key(time))
        position = np.clip(position + 0.3 * DIRECTIONS[move], -1, 1)
        hint = np.eye(3)[target if visible else word]
        np.testing.assert_allclose(timestep.observation["listener"], [[*position, *hint]], rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(timestep.observation["speaker"], np.eye(3)[[target]])
        np.testing.assert_allclose(timestep.reward, -np.sum((position - CORNERS[target]) ** 2), rtol=1e-5)
        assert bool(timestep.truncated) == (time == 12)
        for outcome in timestep.agent_outcomes.values():
            assert outcome.reward == timestep.reward


def test_starts_are_uniform():
    states, _ = jax.vmap(lambda key: SpeakerListener().reset((), key))(jax.random.split(jax.random.key(0), 3000))
    np.testing.assert_allclose(np.bincount(states.target) / 3000, np.full(3, 1 / 3), atol=0.04)
    np.testing.assert_allclose(np.var(np.asarray(states.position), axis=0), np.full(2, 1 / 3), atol=0.03)


def test_unnamed_targets_counts_words(tmp_path):
    feed = Replay(batch_size=8, learning_starts=32, num_envs=4)
    method = MADDPG(DDPG(hidden_sizes=(4,), feed=feed))
    settings = {"steps": 64, "seeds": [0, 1, 2], "episodes": 1, "preset": None, "evaluate_every": 0}
    run = thespis.train(method, "thespis.papers.maddpg.envs:SpeakerListener", out=tmp_path / "run", **settings)
    expected = []
    for seed in range(3):
        actor = jax.tree.map(lambda x, seed=seed: x[seed], run.states.by_group["speaker"].actor)
        logits = [actor.out(actor.body((), target)[0]) for target in jnp.eye(3)]
        expected.append(3 - len({int(np.argmax(x)) for x in logits}))
    np.testing.assert_array_equal(unnamed_targets().compute(run), expected)


def test_other_environments_have_no_words(tmp_path):
    method = MADDPG(DDPG(hidden_sizes=(4,), feed=Replay(batch_size=8, learning_starts=32, num_envs=4)))
    settings = {"steps": 64, "seeds": [0], "episodes": 1, "preset": None, "evaluate_every": 0}
    run = thespis.train(method, "thespis.envs.compiled.harvest:Harvest", out=tmp_path / "run", **settings)
    with pytest.raises(UserError, match="speaker-listener"):
        unnamed_targets().compute(run)
