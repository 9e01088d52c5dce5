"""Shop task: against rules in plain Python, what its demonstrator buys, and goods that no demonstration shows."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from thespis.core.laws.environments import check_environment
from thespis.envs.text.task import TextEnv
from thespis.evaluation.run import Run
from thespis.evidence.benches import few_demonstrations
from thespis.evidence.benches.few_demonstrations import (
    BASELINE,
    DEMONSTRATIONS,
    SHOP_ENV,
    unseen_goods,
    unseen_goods_error,
    unseen_goods_return,
)
from thespis.papers.early_experience.envs import GOODS, SHOP, Shop
from thespis.runtime.keys import fold, seed_key
from thespis.training.data_sources import build_dataset

SPEC: Any = SHOP.spec
WORDS = SPEC.action_space.vocabulary.words
"""Words by token."""


def text(observation):
    return [WORDS[token] for token in np.asarray(observation) if token >= 0]


def test_what_is_bought_is_named_and_only_what_was_asked_for_earns_its_share():
    reset, step = jax.jit(SHOP.reset), jax.jit(SHOP.step)
    rng, kinds = np.random.default_rng(0), set()
    for episode in range(8):
        dialogue, timestep = reset((), seed_key(episode))
        for turn in range(4):
            before = text(timestep.observation)
            assert before[-3] == "want" and before[-2] in GOODS and before[-1] == ">"
            kind = int(rng.integers(4))
            kinds.add(kind)
            other = GOODS[(GOODS.index(before[-2]) + 7) % len(GOODS)]
            answer = [[before[-2], "<end>"], [other, "<end>"], [before[-2], other], ["want", "<end>"]][kind]
            dialogue, timestep = step(dialogue, np.array([WORDS.index(x) for x in answer], "int32"), seed_key(turn))
            after = text(timestep.observation)[len(before) + (2 if answer[1] == "<end>" else 3) :]
            assert after[:-3] == (["have", answer[0]] if kind < 2 else [])
            assert float(timestep.reward) == pytest.approx(0.25 if kind == 0 else 0.0)
            assert bool(timestep.terminated) == (turn == 3)
    assert kinds == {0, 1, 2, 3}


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_demonstrator_buys_what_is_asked_for_or_anything(noise):
    env = TextEnv(Shop(demonstrator_noise=noise))

    def play(key):
        dialogue, _ = env.reset((), key)
        rewards = []
        for turn in range(4):
            key = fold(key, "turn", turn)
            dialogue, timestep = env.step(dialogue, env.demonstrator_action(dialogue, key), key)
            rewards.append(timestep.reward)
        return jax.numpy.stack(rewards).sum()

    returns = np.asarray(jax.jit(jax.vmap(play))(jax.random.split(jax.random.key(0), 500)))
    assert returns.mean() == pytest.approx(1 / len(GOODS) if noise else 1.0, abs=0.02)


def test_shop_follows_the_laws_of_environments():
    check_environment(SHOP)


def test_unseen_goods_are_in_no_demonstration():
    steps = build_dataset(DEMONSTRATIONS["data"], SHOP_ENV, BASELINE).steps
    asked_for = {text(observation)[-2] for observation in steps.view.observation}
    assert {GOODS[i] for i in unseen_goods()} == set(GOODS) - asked_for
    assert len(unseen_goods()) == 18


def test_wishes_are_limited_to_those_that_are_named():
    env = TextEnv(Shop(wishes=unseen_goods()))
    openings = jax.vmap(lambda key: env.reset((), key)[1].observation)(jax.random.split(jax.random.key(0), 400))
    assert {text(opening)[1] for opening in openings} == {GOODS[i] for i in unseen_goods()}


def test_return_on_unseen_goods_is_that_of_episodes_with_such_wishes(monkeypatch):
    class FixedRun(Run):
        method, states, config = None, None, {"seeds": [3, 4]}

        def __init__(self):
            pass

    def play(run, env, num_episodes, mode, stream):
        returns = np.arange(10, dtype=float).reshape(len(run.config["seeds"]), num_episodes) / 10
        assert env.task.wishes == unseen_goods() and stream == "unseen"
        return type("Result", (), {"episode_returns": returns})

    monkeypatch.setattr(few_demonstrations, "play_in", play)
    run = FixedRun()
    np.testing.assert_allclose(unseen_goods_return(5).compute(run), [0.2, 0.7])
    np.testing.assert_allclose(unseen_goods_error(5).compute(run), [0.8, 0.3])
    assert unseen_goods_return().larger_is_better and not unseen_goods_error().larger_is_better
