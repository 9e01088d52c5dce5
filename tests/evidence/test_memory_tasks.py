"""Lost information of the cue: against closed forms, and for policies that were trained with a visible cue."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thespis
from thespis.core.contracts import Mode
from thespis.core.records import View
from thespis.data.feeds import Rollouts
from thespis.envs.compiled.delayed_recall import DelayedRecall
from thespis.evidence.memory_tasks import cue_information, lost_cue_information
from thespis.methods.online.a2c import A2C
from thespis.nets.elstm import ELSTM
from thespis.papers.rtrl_actor_critic.envs import TMaze, TMazeState
from thespis.runtime.keys import seed_key

MAZE, RECALL = "thespis.papers.rtrl_actor_critic.envs:TMaze", "thespis.envs.compiled.delayed_recall:DelayedRecall"
METHOD = A2C(hidden_sizes=(), memory=ELSTM(4), learning_rate=1e-2, optimizer="adam", feed=Rollouts(5, num_envs=8))


def entropy(p):
    p = np.asarray(p, np.float64)
    return -(p[p > 0] * np.log2(p[p > 0])).sum()


def test_information_against_entropies():
    cues = np.array([0, 1, 2, 0, 1, 2, 1])
    probs = np.random.default_rng(0).dirichlet(np.ones(4), len(cues))
    joint = np.stack([probs[cues == cue].mean(axis=0) for cue in range(3)]) / 3
    expected = entropy(joint.sum(0)) + entropy(joint.sum(1)) - entropy(joint)
    assert cue_information(probs, cues, 3) == pytest.approx(expected / np.log2(3))


def test_information_of_certain_and_of_constant_actions():
    cues = np.array([0, 1, 1, 0])
    assert cue_information(np.eye(4)[cues + 2], cues, 2) == pytest.approx(1.0)
    assert cue_information(np.tile([0.5, 0.5, 0.0], (4, 1)), cues, 2) == pytest.approx(0.0)
    with pytest.raises(ValueError, match=r"cues \[2\]"):
        cue_information(np.eye(4)[cues], cues, 3)


def test_the_cue_matters_at_the_end_of_the_corridor_and_at_the_first_recall():
    maze, recall = TMaze(7), DelayedRecall(3, delay=5, num_recalls=2)
    for env, task in ((maze, maze.cue_task()), (recall, recall.cue_task())):
        state, step = env.reset((), seed_key(3))
        cue = int(task.cue(state))
        for _ in range(task.num_steps):
            assert not step.terminated
            state, step = jax.jit(env.step)(state, jnp.int32(task.action), seed_key(1))
        assert int(task.cue(state)) == cue < task.num_cues
        if isinstance(env, TMaze):
            assert step.observation.tolist() == [0.0, 1.0, 0.0]
        else:
            assert step.observation.tolist() == [0.0] * 4 + [1.0] and int(state.time) == env.delay + 1


def north_probs(method, state, env, north):
    """Action probabilities at the end of a corridor without noise, by a walk step by step."""

    @jax.jit
    def walk(state, north):
        policy = method.policy(state, Mode.SAMPLE)
        env_state = TMazeState(jnp.zeros((), "int32"), jnp.zeros((), "int32"), north)
        observation, memory = env._observe(env_state, seed_key(0)), method.init_memory(policy, 1)
        for _ in range(env.corridor_length):
            _, memory, _ = method.act(policy, memory, View(observation[None]), seed_key(0))
            env_state, step = env.step(env_state, jnp.int32(1), seed_key(0))
            observation = step.observation
        return method.action_probs(policy, memory, View(observation[None]))[0]

    return np.asarray(walk(state, jnp.asarray(north)))


@pytest.mark.slow
def test_shares_are_those_of_a_walk_by_hand(tmp_path):
    env = TMaze(3, 12)
    run = thespis.train(
        METHOD,
        f"{MAZE}?corridor_length=3&time_limit=12",
        steps=4_000,
        seeds=2,
        episodes=2,
        preset=None,
        out=tmp_path / "run",
    )
    shares = lost_cue_information(50).compute(run)
    for seed in range(2):
        state = jax.tree.map(lambda leaf, seed=seed: leaf[seed], run.states)
        by_cue = np.stack([north_probs(run.method, state, env, north) for north in (False, True)])
        assert shares[seed] == pytest.approx(1 - cue_information(by_cue, np.arange(2), 2), abs=1e-5)
    assert not lost_cue_information().larger_is_better and lost_cue_information().bounds == (0.0, 1.0)


@pytest.mark.slow
def test_a_visible_cue_is_used_and_a_hidden_one_is_not(tmp_path):
    method = dataclasses.replace(METHOD, memory=None, hidden_sizes=(16,))
    lost = []
    for visible in (True, False):
        env = f"{RECALL}?num_symbols=2&delay=3&num_recalls=4&cue_visible={visible}"
        run = thespis.train(method, env, steps=8_000, seeds=1, episodes=2, preset=None, out=tmp_path / str(visible))
        lost.append(float(lost_cue_information().compute(run)[0]))
    assert lost[0] < 0.2 and lost[1] == pytest.approx(1.0, abs=1e-6)
