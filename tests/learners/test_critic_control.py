"""A critic that learns from a frozen model's texts and weighs its words: its targets, what stays, what it steers."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import made_up
import numpy as np
import pytest
from made_up import quick_key

from thespis.core.contracts import Mode
from thespis.core.feeds import Episodes
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
from thespis.tiny import prepared

SMALL = {"model": "blank", "layers": 1, "width": 32}


def conversations() -> Told:
    """Of two turns and of one, of utterances of one id and of two; the second is cut."""
    transcript = np.array([[4, 3, 5, 2, 6, 3, 2, 7], [4, 3, 6, 7, -1, -1, -1, -1]], "int32")
    starts = np.array([[2, 2], [6, 4], [8, 4]], "int32")
    said = np.array([[[5, 2], [6, 7]], [[2, -1], [-1, -1]]], "int32")
    alive = np.array([[True, True], [True, False]])
    reward = np.array([[0.5, 2.0], [1.0, 9.0]], "float32")
    return Told(*jax.device_put((transcript, starts, said, alive, reward, np.array([False, True]))))


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
    spec, weight = Spoken(Maze(size=2, turns=2)).spec, np.random.default_rng(0).normal(size=32).astype("float32")
    counts = [[(0, 0, 2), (0, 1, 3), (0, 2, 4), (1, 0, 6), (1, 1, 7)], [(0, 0, 2), (0, 1, 3), (0, 2, 4)]]

    @jax.jit
    def both(key, weight, told):
        mind = dataclasses.replace(method.init(spec, key).mind, weight=weight, bias=jnp.float32(0.1))
        read = {end: mind.model(told.transcript[:, :end], jnp.arange(2 * end).reshape(2, end) % end)[:, -1]
                for end in (2, 3, 4, 6, 7)}  # fmt: skip
        return method.verdict(mind, told)[0], read

    verdict, read = jax.tree.map(np.asarray, both(quick_key(0), weight, told))

    def value(row: int, count: int) -> float:
        return float(read[count][row] @ weight / 32**0.5 + 0.1)

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
    seen, said = np.array([[[8, 4, 14, 3, *[-1] * 6]] * 2], "int32"), np.array([[[6, 4, 9, 2], [6, 4, 12, 2]]], "int32")
    after = np.concatenate([seen[..., :4], said, seen[..., 8:]], axis=-1)
    no, reward = np.zeros((1, 2), bool), np.array([[1.0, -1.0]], "float32")
    given = (seen, said, reward, ~no, no, after, ~no, np.zeros(said.shape, "float32"))
    seen, said, reward, first, no, after, over, logs = jax.device_put(given)
    steps = Transition(View(seen), said, reward, first, no, View(after), over, logs)
    batch = Batch(steps, first, (), jax.device_put(np.int32(0)))
    update, learnt = jax.jit(lambda *given: method.update(*given)), state
    for _ in range(20):
        learnt, report = update(learnt, batch, quick_key(1))
    for a, b in zip(jax.tree.leaves(state.mind.model), jax.tree.leaves(learnt.mind.model), strict=True):
        np.testing.assert_array_equal(a, b)
    verdict = jax.jit(lambda mind, batch: method.verdict(mind, Told.of(batch.steps, batch.mask))[0])(learnt.mind, batch)
    verdict = jax.tree.map(np.asarray, verdict)
    np.testing.assert_allclose(verdict.target[0], np.broadcast_to(np.asarray(reward).T, (2, 5)), atol=1e-5)
    np.testing.assert_allclose(verdict.value[0, :, 3], [1.0, -1.0], atol=0.3)
    np.testing.assert_allclose(verdict.value[0, 0, :3], verdict.value[0, 1, :3], atol=1e-5)
    assert report.metrics["critic_loss"] < 0.9
    assert isinstance(method.policy(learnt, Mode.EXPLORE).steering, Unsteered)
    for mode in (Mode.SAMPLE, Mode.EXPLOIT):
        assert isinstance(method.policy(learnt, mode).steering, ByCritic)


@pytest.mark.slow
def test_reviews_are_steered_towards_praise():
    world, rows = Spoken(Review()), 256
    method = prepared(CriticControl(layers=2, width=64, likely=4, feed=Episodes(1, envs=64)), world)
    assert isinstance(method, CriticControl)
    loop = CompiledLoop(Parts(method, EnvironmentReward(), Fixed()), world, 64, [0], 10)
    states = loop.learner(loop.advance(loop.init(), 60)).method

    def earned(strength: float) -> float:
        steered = with_array_leaves(dataclasses.replace(method, strength=strength))
        return float(play(steered, states, AsHost(world, rows), [0], Mode.SAMPLE).returns.mean())

    weak, strong, plain = earned(1.0), earned(3.0), earned(0.0)
    assert abs(plain) < 0.5 and weak > plain + 0.5 and strong > weak
