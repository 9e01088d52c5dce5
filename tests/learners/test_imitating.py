"""Turns that are paid by a discriminator: its loss, what it learns to pay, and where experts come from."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from made_up import quick_key
from talks import KEY, MODEL, TALKING, TIME, held

from thespis.core.conformance import check_method
from thespis.core.errors import UserError
from thespis.core.feeds import Episodes
from thespis.envs.text.maze import Maze
from thespis.envs.text.task import Spoken
from thespis.learners.credit import TurnCritic
from thespis.learners.imitating import KEPT, Discriminator, Opposed, experts_of, set_aside, told_apart
from thespis.learners.process import shares
from thespis.learners.talker import Mind, minded
from thespis.methods.language.ppo_lm import LanguagePPO
from thespis.runs.config import apply_settings
from thespis.sources import shown_in, with_experts

WORLD, EXPERT = Spoken(Maze(size=2, turns=3)), Spoken(Maze(size=2, turns=3, lost=0.0))


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_the_loss_is_the_cross_entropy_of_turns():
    rng = np.random.default_rng(2)
    judge = Mind(MODEL, *jax.device_put((rng.normal(size=32).astype("float32"), np.float32(0.3))))
    theirs, ours = held([8, 8, 2], 0), held([3, 4, 5, 6], 1, turns=3)
    ends = [4 + 3 * t for t in range(3)]  # up to the end of an utterance, and no further

    @jax.jit
    def both(judge, theirs, ours):
        ids = jnp.concatenate([theirs.transcript, ours.transcript])
        read = [judge.model(ids[:, :end], jnp.broadcast_to(jnp.arange(end), (7, end)))[:, -1] for end in ends]
        return told_apart(judge, theirs, ours)[0], judge.value(jnp.stack(read))

    loss, logits = both(judge, theirs, ours)
    d = 1 / (1 + np.exp(-np.asarray(logits, "float64")))
    wanted = np.mean(-np.log(d[:2, :3])) + np.mean(-np.log(1 - d[:, 3:]))
    assert float(loss) == pytest.approx(wanted, rel=1e-4)


def test_what_only_the_actor_says_costs_and_what_experts_say_pays():
    """Experts say 8 first, the actor every second time: the logit of the best discriminator is log 2 there."""
    part = Discriminator(learning_rate=3e-3, steps=3, most=2.0)
    kept = jax.jit(lambda: (judge := minded(MODEL, 32), part.stepper.init(judge)))()
    kept = Opposed(*kept, experts=held([8] * 64, seed=50))
    step = jax.jit(lambda kept, talks, key: part(kept, talks, 1, key))
    for i in range(30):
        talks = held([8, 3] * 8, seed=i)
        kept, paid, told = step(kept, talks, quick_key(i))
        if i == 0:
            np.testing.assert_array_equal(paid.reward, 0.0)
            assert float(told["discriminator_loss"]) <= 2 * np.log(2) + 1e-4
    reward = np.asarray(paid.reward)
    assert np.median(reward[0, ::2]) == pytest.approx(np.log(2), abs=0.4) and np.median(reward[0, 1::2]) < -1.0, reward
    assert np.abs(reward).max() <= 2.0 and (reward[2] == 0).all(), "what is paid is bounded; nothing behind the end"
    again = held([8, 3] * 8, seed=4)
    again = dataclasses.replace(again, reward=jax.device_put(np.full((TIME, 16), -5.0, "float32")))
    same = [step(kept, t, quick_key(0))[1].reward for t in (held([8, 3] * 8, seed=4), again)]
    np.testing.assert_array_equal(*same)  # what the world pays is not looked at


def test_experts_are_looked_up_in_their_world_and_put_aside():
    method = LanguagePPO(experience=Discriminator("demonstrations:7"))
    found = with_experts(method, EXPERT)
    assert found.experience.data.startswith("shown:") and with_experts(found, EXPERT) == found
    path, shown = set_aside(found.experience.data.removeprefix(KEPT)), shown_in(EXPERT, 7).steps

    @jax.jit
    def begun():
        kept, read = found.experience.init(MODEL, TALKING, TIME, KEY), experts_of(str(path))
        return kept, read, shares(Mind(kept.judge.model, jnp.ones(32), jnp.zeros(())), kept.experts)

    kept, read, said = jax.tree.map(np.asarray, begun())
    jax.tree.map(np.testing.assert_array_equal, kept.experts, read)
    jax.tree.map(np.testing.assert_array_equal, kept.judge.model, MODEL)
    assert (kept.judge.weight == 0).all() and kept.judge.bias == 0
    assert read.alive.shape[1] == 7 and (np.where(read.alive, read.reward, 0.0).sum(axis=0) == 1).all()
    row, turn = np.nonzero(read.alive.T)
    np.testing.assert_array_equal(read.said[turn, row], shown.action)
    assert (said[~read.alive] == 0).all()


@pytest.mark.slow
def test_experts_of_another_world(monkeypatch):
    from thespis.evidence import speaking

    other = with_experts(
        LanguagePPO(experience=Discriminator("demonstrations:20:thespis.evidence.speaking:WALKER")), WORLD
    )
    assert bool((experts_of(other.experience.data).returns == 1).all()), "who is never lost arrives"
    own = with_experts(LanguagePPO(experience=Discriminator("demonstrations:20")), WORLD)
    assert not (experts_of(own.experience.data).returns == 1).all()
    assert speaking.WALKER.spec.action == WORLD.spec.action
    with pytest.raises(UserError, match="has other words"):
        with_experts(LanguagePPO(experience=Discriminator("demonstrations:4:text:echo")), WORLD)
    with pytest.raises(UserError, match="put aside"):
        experts_of("shown:nothing")


@pytest.mark.slow
def test_the_laws_hold_beside_experts():
    method = LanguagePPO(
        model="blank", layers=1, width=32, minibatch=2, credit=TurnCritic(), feed=Episodes(3, envs=3),
        experience=Discriminator("demonstrations:5"),
    )  # fmt: skip
    check_method(with_experts(method, WORLD), WORLD.spec)


def test_it_is_set_by_name():
    method = apply_settings(LanguagePPO(), ["experience=Discriminator", "experience.data=runs/experts"])
    assert method.experience.data == "runs/experts"
