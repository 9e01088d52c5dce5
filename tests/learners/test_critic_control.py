"""A critic that learns from a frozen model's texts and weighs its words: its targets, what stays, what it steers."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import made_up
import numpy as np
import pytest
from reading import features_of

from thespis.core.contracts import Mode
from thespis.core.feeds import Episodes
from thespis.core.keys import key_of
from thespis.core.records import Batch, Transition, View
from thespis.curricula.fixed import Fixed
from thespis.envs.host.compiled import AsHost
from thespis.envs.text.maze import Maze
from thespis.envs.text.review import Review
from thespis.envs.text.task import Spoken
from thespis.evaluation.play import play
from thespis.feedback.environment import EnvironmentReward
from thespis.language.steering import ByCritic, Unsteered
from thespis.learners.credit import TokenCritic
from thespis.learners.transcripts import Told
from thespis.loops.compiled import CompiledLoop
from thespis.loops.parts import Parts, with_array_leaves
from thespis.methods.language.critic_control import CriticControl

SMALL = {"model": "blank", "layers": 1, "width": 32}


def conversations() -> Told:
    """Of two turns and of one, of utterances of one id and of two; the second is cut."""
    transcript = jnp.array([[4, 3, 5, 2, 6, 3, 2, 7], [4, 3, 6, 7, -1, -1, -1, -1]])
    starts = jnp.array([[2, 2], [6, 4], [8, 4]])
    said = jnp.array([[[5, 2], [6, 7]], [[2, -1], [-1, -1]]])
    alive = jnp.array([[True, True], [True, False]])
    reward = jnp.array([[0.5, 2.0], [1.0, 9.0]])
    return Told(transcript, starts, said, alive, reward, jnp.array([False, True]))


def generalised(values: list[float], rewards: list[float], after: float, discount: float, trace: float) -> list[float]:
    """Targets by the definition: a sum over all later errors."""
    following = [*values[1:], after]
    errors = [r + discount * v - w for r, v, w in zip(rewards, following, values, strict=True)]
    return [
        values[i] + sum((discount * trace) ** (j - i) * errors[j] for j in range(i, len(errors)))
        for i in range(len(values))
    ]


def test_targets_stand_before_each_id_and_behind_the_last():
    method = with_array_leaves(CriticControl(**SMALL, credit=TokenCritic(0.9, 0.8)))
    told = conversations()
    state = method.init(Spoken(Maze(size=2, turns=2)).spec, key_of(0))
    rng = np.random.default_rng(0)
    mind = dataclasses.replace(state.mind, weight=jnp.asarray(rng.normal(size=32), "float32"), bias=jnp.float32(0.1))
    verdict, _ = method.verdict(mind, told)

    def value(row: int, count: int) -> float:
        features = features_of(mind.model, told.transcript[row, :count])[-1]
        return float(features @ mind.weight / 32**0.5 + mind.bias)

    counts = [[(0, 0, 2), (0, 1, 3), (0, 2, 4), (1, 0, 6), (1, 1, 7)], [(0, 0, 2), (0, 1, 3), (0, 2, 4)]]
    rewards, behind = [[0.0, 0.0, 0.5, 0.0, 1.0], [0.0, 0.0, 2.0]], [0.0, value(1, 4)]
    valued = np.zeros(verdict.valued.shape, bool)
    for row, places in enumerate(counts):
        values = [value(row, count) for *_, count in places]
        wanted = generalised(values, rewards[row], behind[row], 0.8, 0.9)
        for (turn, i, _), said, target in zip(places, values, wanted, strict=True):
            valued[turn, row, i] = True
            assert verdict.value[turn, row, i] == pytest.approx(said, abs=1e-4)
            assert verdict.target[turn, row, i] == pytest.approx(target, abs=1e-4)
    np.testing.assert_array_equal(verdict.valued, valued)


def test_only_the_critic_learns_and_only_play_is_steered():
    world = Spoken(Review(clauses=1))
    method = with_array_leaves(CriticControl(**SMALL, credit=TokenCritic(1.0, 1.0), steps=50))
    state = made_up.begun(method, world.spec)
    seen, said = jnp.array([[[8, 4, 14, 3, -1, -1, -1, -1, -1, -1]] * 2]), jnp.array([[[6, 4, 9, 2], [6, 4, 12, 2]]])
    after = seen.at[:, :, 4:8].set(said)
    no = jnp.zeros((1, 2), bool)
    reward = jnp.array([[1.0, -1.0]])
    steps = Transition(View(seen), said, reward, ~no, no, View(after), ~no, jnp.zeros(said.shape))
    batch = Batch(steps, jnp.ones((1, 2), bool), (), jnp.int32(0))
    update, learnt = jax.jit(lambda *given: method.update(*given)), state
    for _ in range(20):
        learnt, report = update(learnt, batch, key_of(1))
    for a, b in zip(jax.tree.leaves(state.mind.model), jax.tree.leaves(learnt.mind.model), strict=True):
        np.testing.assert_array_equal(a, b)
    verdict, _ = method.verdict(learnt.mind, Told.of(steps, batch.mask))
    np.testing.assert_allclose(verdict.target[0], np.broadcast_to(reward.T, (2, 5)), atol=1e-5)
    np.testing.assert_allclose(verdict.value[0, :, 3], [1.0, -1.0], atol=0.3)
    np.testing.assert_allclose(verdict.value[0, 0, :3], verdict.value[0, 1, :3], atol=1e-5)
    assert report.metrics["critic_loss"] < 0.9
    assert isinstance(method.policy(learnt, Mode.EXPLORE).steering, Unsteered)
    for mode in (Mode.SAMPLE, Mode.EXPLOIT):
        assert isinstance(method.policy(learnt, mode).steering, ByCritic)


@pytest.mark.slow
def test_reviews_are_steered_towards_praise():
    world, rows = Spoken(Review()), 256
    method = CriticControl(layers=2, width=64, likely=4, feed=Episodes(1, envs=64))
    loop = CompiledLoop(Parts(method, EnvironmentReward(), Fixed()), world, 64, [0], 10)
    states = loop.learner(loop.advance(loop.init(), 60)).method

    def earned(strength: float) -> float:
        steered = with_array_leaves(dataclasses.replace(method, strength=strength))
        return float(play(steered, states, AsHost(world, rows), [0], Mode.SAMPLE).returns.mean())

    weak, strong, plain = earned(1.0), earned(3.0), earned(0.0)
    assert abs(plain) < 0.5 and weak > plain + 0.5 and strong > weak
