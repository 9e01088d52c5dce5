"""Turns that are paid by a discriminator: its loss, what it learns to pay, and where experts come from."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reading import features_of
from talks import KEY, MODEL, TALKING, TIME, held

from thespis.core.conformance import check_method
from thespis.core.errors import UserError
from thespis.core.feeds import Episodes
from thespis.core.keys import key_of
from thespis.data.conversations import turns_of
from thespis.data.datasets import to_columns, write_dataset
from thespis.envs.text.maze import Maze
from thespis.envs.text.task import Spoken
from thespis.learners.conversations import Conversations
from thespis.learners.credit import TurnCritic
from thespis.learners.imitating import Discriminator, experts_of, told_apart
from thespis.learners.process import shares
from thespis.learners.talker import Mind
from thespis.methods.language.ppo_lm import LanguagePPO
from thespis.runs.config import apply_settings
from thespis.sources import shown_in, with_experts
from thespis.tiny import demonstrated

WORLD, EXPERT = Spoken(Maze(size=2, turns=3)), Spoken(Maze(size=2, turns=3, lost=0.0))


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_the_loss_is_the_cross_entropy_of_turns():
    rng = np.random.default_rng(2)
    judge = Mind(MODEL, jnp.asarray(rng.normal(size=32), "float32"), jnp.asarray(0.3))
    theirs, ours = held([8, 8, 2], 0), held([3, 4, 5, 6], 1, turns=3)
    loss, _ = told_apart(judge, theirs, ours)

    def sides(talks: Conversations, turns: int, label: int) -> float:
        lost = []
        for row in range(talks.alive.shape[1]):
            for t in range(turns):
                count = 4 + 3 * t  # up to the end of the utterance, and no further
                features = features_of(MODEL, talks.transcript[row, :count])[-1]
                d = 1 / (1 + np.exp(-float(judge.value(features))))
                lost.append(-np.log(d if label else 1 - d))
        return float(np.mean(lost))

    assert float(loss) == pytest.approx(sides(theirs, 2, 1) + sides(ours, 3, 0), rel=1e-4)


def test_what_only_the_actor_says_costs_and_what_experts_say_pays(tmp_path):
    """Experts say 8 first, the actor every second time: the logit of the best discriminator is log 2 there."""
    part = Discriminator(learning_rate=3e-3, steps=3, most=2.0)
    judge = Mind(jax.tree.map(jnp.copy, MODEL), jnp.zeros(32), jnp.zeros(()))
    kept = dataclasses.replace(begun(part, tmp_path), judge=judge, experts=held([8] * 64, seed=50))
    kept = dataclasses.replace(kept, opt=part.stepper.init(judge))
    step = jax.jit(lambda kept, talks, key: part(kept, talks, 1, key))
    for i in range(30):
        talks = held([8, 3] * 8, seed=i)
        kept, paid, told = step(kept, talks, key_of(i))
        if i == 0:
            np.testing.assert_array_equal(paid.reward, 0.0)
            assert float(told["discriminator_loss"]) <= 2 * np.log(2) + 1e-4
    reward = np.asarray(paid.reward)
    assert np.median(reward[0, ::2]) == pytest.approx(np.log(2), abs=0.4) and np.median(reward[0, 1::2]) < -1.0, reward
    assert np.abs(reward).max() <= 2.0 and (reward[2] == 0).all(), "what is paid is bounded; nothing behind the end"
    again = held([8, 3] * 8, seed=4)
    again = dataclasses.replace(again, reward=jnp.full((TIME, 16), -5.0))
    same = [step(kept, t, key_of(0))[1].reward for t in (held([8, 3] * 8, seed=4), again)]
    np.testing.assert_array_equal(*same)  # what the world pays is not looked at


def begun(part: Discriminator, path):
    """Its beginning, with some experts on disk."""
    steps = turns_of(*(np.asarray(x) for x in demonstrated(WORLD, 4)))
    about = {"env": "any", "observation": WORLD.spec.observation, "action": WORLD.spec.action}
    write_dataset(path / "data", to_columns(WORLD.spec, steps), about)
    return dataclasses.replace(part, data=str(path / "data")).init(MODEL, TALKING, TIME, KEY)


def test_experts_are_looked_up_in_their_world_and_put_aside():
    method = LanguagePPO(experience=Discriminator("demonstrations:7"))
    found = with_experts(method, EXPERT)
    assert found.experience.data.startswith("shown:") and with_experts(found, EXPERT) == found
    experts, shown = experts_of(found.experience.data), shown_in(EXPERT, 7).steps
    assert experts.alive.shape[1] == 7 and bool((experts.returns == 1).all())
    row, turn = np.nonzero(np.asarray(experts.alive).T)
    np.testing.assert_array_equal(np.asarray(experts.said)[turn, row], shown.action)
    said = np.asarray(shares(Mind(MODEL, jnp.ones(32), jnp.zeros(())), experts))
    assert (said[~np.asarray(experts.alive)] == 0).all()


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
