"""Listed utterances: what is said is what was chosen, and what the methods inside are given to learn from."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.feeds import Replay, Rollouts
from thespis.core.keys import key_of
from thespis.core.records import Batch, Transition, View
from thespis.envs.text.maze import Maze
from thespis.envs.text.task import Spoken
from thespis.learners.hindsight import AsTold
from thespis.learners.listed import numbered
from thespis.learners.temperature import FixedTemperature
from thespis.methods.language.glam import GLAM
from thespis.methods.language.sac_glam import SACGLAM
from thespis.methods.online.ppo import PPO
from thespis.methods.online.sac import SAC

WORLD = Spoken(Maze(size=2, turns=3))
SPEC = WORLD.spec
CHOICES = np.asarray(SPEC.action.choices, "int32")
SMALL: dict[str, Any] = {"model": "blank", "layers": 1, "width": 32}
GAMMA, ALPHA = 0.9, 0.3


def glam(**changed) -> GLAM:
    return GLAM(**SMALL, method=PPO(hidden=(8,), epochs=2, minibatch=8, feed=Rollouts(4, envs=4), **changed))


def sac_glam(**changed) -> SACGLAM:
    sac = SAC(
        discount=GAMMA, learning_rate=1e-3, temperature=FixedTemperature(ALPHA), hidden=(8,),
        feed=Replay(batch=4, length=3),
    )  # fmt: skip
    return SACGLAM(**SMALL, method=sac, **({"patience": 0, "hindsight": AsTold()} | changed))


@functools.cache
def begun(method_of):
    """A method, and how it begins."""
    method = method_of()
    return method, jax.jit(lambda key: method.init(SPEC, key))(key_of(0))


@functools.cache
def beginnings(rows: int) -> View:
    seen = jax.jit(jax.vmap(lambda key: WORLD.reset((), key)[1].observation))(jax.random.split(key_of(7), 16))
    return View(jnp.asarray(np.asarray(seen)[:rows]))


@jax.jit
def logs_of(model, texts):
    return jax.vmap(lambda text: jax.nn.log_softmax(model.logits(model(text, jnp.arange(text.shape[0])))))(texts)


def log_probs(model, text) -> np.ndarray:
    """Of the four utterances, by reading the text with each of them behind it, and rubbish behind that."""
    count = int((np.asarray(text) >= 0).sum())
    texts = np.zeros((len(CHOICES), 48), "int32")
    texts[:, :count], texts[:, count : count + CHOICES.shape[1]] = np.asarray(text)[:count], CHOICES
    logs, places = np.asarray(logs_of(model, texts)), np.arange(CHOICES.shape[1])
    found = np.array([logs[i, count - 1 + places, ids].sum() for i, ids in enumerate(CHOICES)])
    return found - np.log(np.exp(found).sum())


@pytest.mark.parametrize("made", [pytest.param(glam, marks=pytest.mark.slow), sac_glam])
def test_what_is_said_is_drawn_from_the_listed_utterances_as_the_model_finds_them(made):
    (method, state), view = begun(made), beginnings(1)
    actor = state.learnt.network.actor if isinstance(method, GLAM) else state.learnt.actor
    logs = log_probs(actor.listing.model, view.observation[0])
    many = jax.tree.map(lambda x: np.repeat(x, 3_000, axis=0), view)
    said, _, extras = jax.jit(method.act)(method.policy(state, Mode.SAMPLE), (), many, key_of(1))
    drawn = (np.asarray(said)[:, None] == CHOICES).all(axis=-1)
    assert (drawn.sum(axis=1) == 1).all()
    np.testing.assert_allclose(drawn.mean(axis=0), np.exp(logs), atol=0.04)
    if isinstance(method, GLAM):
        np.testing.assert_allclose(extras["log_prob"], logs[drawn.argmax(axis=1)], atol=1e-4)
        told = method.probabilities(method.policy(state, Mode.SAMPLE), (), view)
        np.testing.assert_allclose(told[0], np.exp(logs), atol=1e-4)
    best, _, _ = jax.jit(method.act)(method.policy(state, Mode.EXPLOIT), (), view, key_of(1))
    np.testing.assert_array_equal(best[0], CHOICES[logs.argmax()])


def test_utterances_have_numbers():
    talking = begun(sac_glam)[1].talking
    steps, no = CHOICES[[2, 0, 3]][None], np.zeros((1, 3), bool)
    seen = jax.tree.map(lambda x: np.asarray(x)[None], beginnings(3))
    some = Transition(seen, steps, np.zeros((1, 3), "float32"), no, no, seen, no)
    found = jax.jit(lambda steps: numbered(talking, steps).action)(some)
    np.testing.assert_array_equal(found, [[2, 0, 3]])


def windows() -> Batch:
    """Four windows of three steps; the first ends after one, the second after two, a third is paid in its last step."""
    rng, view = np.random.default_rng(0), beginnings(16)
    seen, after = (np.asarray(view.observation)[rng.integers(0, 16, (3, 4))] for _ in range(2))
    ends = np.asarray([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]], bool)
    mask = np.asarray([[1, 1, 1, 1], [0, 1, 1, 1], [0, 0, 1, 1]], bool)
    reward = np.asarray([[1.0, 0.5, 0.0, 0.0], [9.0, 0.25, 0.0, 2.0], [9.0, 9.0, 4.0, 0.0]], "float32")
    action = CHOICES[rng.integers(0, 4, (3, 4))]
    no = np.zeros((3, 4), bool)
    steps = Transition(View(seen), action, reward, ends, no, View(after), no)
    return Batch(steps, mask, (), jnp.asarray(0))


@pytest.mark.parametrize("horizon", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_critics_learn_soft_returns_of_as_many_steps_as_the_horizon(horizon):
    """The loss of one update, against sums over listed utterances written out."""
    method, batch = sac_glam(horizon=horizon), windows()
    state = begun(sac_glam)[1]
    _, report = jax.jit(method.update)(state, batch, key_of(1))
    learnt, steps, losses = state.learnt, batch.steps, []

    valued = jax.jit(lambda critics, text: jax.vmap(lambda critic: critic(text, jnp.arange(4)))(critics))

    def values(text) -> np.ndarray:
        return np.asarray(valued(learnt.critics, text))

    for row in range(4):
        earned, factor = 0.0, 1.0
        for t in range(horizon):
            earned += factor * float(steps.reward[t, row])
            factor *= 0.0 if steps.terminated[t, row] else GAMMA
            if steps.terminated[t, row]:
                break
        text = steps.next_view.observation[t, row]
        logs = log_probs(learnt.actor.listing.model, text)
        target = earned + factor * float((np.exp(logs) * (values(text).min(axis=0) - ALPHA * logs)).sum())
        number = int((np.asarray(steps.action[0, row]) == CHOICES).all(axis=1).argmax())
        losses.append((values(steps.view.observation[0, row])[:, number] - target) ** 2)
    assert float(report.metrics["critic_loss"]) == pytest.approx(np.mean(losses), rel=1e-3)


def test_the_actor_waits_while_critics_learn_the_first_of_it():
    method, batch = sac_glam(patience=2), windows()
    state, update = begun(sac_glam)[1], jax.jit(method.update)
    for index, moves in [(0, False), (1, False), (2, True)]:
        after, _ = update(state, dataclasses.replace(batch, index=jnp.asarray(index)), key_of(index))
        assert not same(after.learnt.critics, state.learnt.critics)
        assert same(after.learnt.actor, state.learnt.actor) is not moves
        assert same(after.learnt.actor_opt, state.learnt.actor_opt) is not moves
        state = after


def same(one, other) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (one, other)), strict=True))


def test_worlds_that_do_not_fit_are_refused():
    unlisted = dataclasses.replace(SPEC, action=dataclasses.replace(SPEC.action, choices=()))
    with pytest.raises(UserError, match="does not list"):
        glam().init(unlisted, key_of(0))
