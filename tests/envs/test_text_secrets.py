"""What text worlds tell critics alone: the same conversations, a secret that is right, and actors that never see it."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from thespis.core.conformance import check_environment
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.keys import key_of, per_index
from thespis.envs.text.echo import Echo
from thespis.envs.text.naming import world as named
from thespis.envs.text.questions import ANIMALS, Questions
from thespis.envs.text.task import Spoken
from thespis.envs.text.wordle import WORDS
from thespis.methods.language.sweet import SWEET
from thespis.sources import shown_in

ROWS = 20


def words(world: Spoken, ids) -> list[str]:
    return [world.task.manners.vocabulary.words[int(i)] for i in ids if i >= 0]


@pytest.mark.parametrize("name", ["questions", pytest.param("wordle", marks=pytest.mark.slow)])
def test_the_conversation_is_the_same_and_critics_read_the_secret_before_it(name):
    plain, told = named(name), named(f"{name}-told")
    assert plain.spec.privileged is None and dataclasses.replace(told.spec, privileged=None) == plain.spec
    check_environment(told, rows=3, ticks=told.spec.time_limit + 3)
    keys = per_index(key_of(4), ROWS)

    @jax.jit
    def begun(keys):
        return [jax.vmap(world.reset, in_axes=(None, 0))((), keys) for world in (plain, told)]

    @jax.jit
    def after(states, keys, saying):
        said = jax.vmap(plain.demonstrated)(states[0], saying)
        return [jax.vmap(w.step)(s, said, keys) for w, s in zip((plain, told), states, strict=True)]

    states, steps = zip(*begun(keys), strict=True)
    for t in range(3):
        tasks, steps = jax.tree.map(np.asarray, (states[1].task, steps))
        assert steps[0].privileged is None
        np.testing.assert_array_equal(steps[0].observation, steps[1].observation)
        np.testing.assert_array_equal(steps[0].reward, steps[1].reward)
        seen, width = steps[1].privileged, told.spec.privileged.length - told.spec.observation.length
        np.testing.assert_array_equal(seen[:, width:], steps[1].observation)
        for row in range(ROWS):
            task = jax.tree.map(lambda x, row=row: x[row], tasks)
            secret = "".join(words(told, seen[row, :width]))
            assert secret == (WORDS[int(task.hidden)] if name == "wordle" else list(ANIMALS)[int(task.animal)])
        states, steps = zip(*after(states, keys, per_index(key_of(t), ROWS)), strict=True)


def test_an_actor_says_the_same_whatever_the_secret_is():
    """All games begin alike for who acts: only what critics read differs between them."""
    world = named("questions-told")
    method = SWEET(model="blank", layers=1, width=32)

    @jax.jit
    def spoken():
        _, begun = jax.vmap(world.reset, in_axes=(None, 0))((), per_index(key_of(0), ROWS))
        policy = method.policy(method.init(world.spec, key_of(1)), Mode.EXPLOIT)
        return begun, method.act(policy, method.begin(policy, ROWS), begun.view, key_of(2))[0]

    begun, said = jax.tree.map(np.asarray, spoken())
    assert len(np.unique(begun.privileged[:, 0])) > 5 and len(np.unique(begun.observation, axis=0)) == 1
    assert [f.name for f in dataclasses.fields(begun.view)] == ["observation", "legal", "alive", "position"]
    assert len(np.unique(said, axis=0)) == 1


def test_demonstrations_of_a_world_that_tells_hold_its_secrets():
    """Who wins a game of questions has named the animal last."""
    world = Spoken(Questions(animals=6, turns=4), told=True)
    data = shown_in(world, 60)
    steps = data.steps
    assert data.spec.privileged is not None and steps.privileged is not None and steps.next_privileged is not None
    won = np.flatnonzero(steps.reward == 1)
    assert len(won) > 10
    np.testing.assert_array_equal(steps.privileged[won, 0], steps.action[won, 1])
    inside = ~steps.first
    np.testing.assert_array_equal(steps.privileged[inside], steps.next_privileged[np.flatnonzero(inside) - 1])
    np.testing.assert_array_equal(steps.next_privileged[:, 1:], steps.next_view.observation)
    assert shown_in(Spoken(Questions(animals=6, turns=4)), 5).steps.privileged is None


def test_of_fewer_animals_only_these_are_thought_of():
    world = Spoken(Questions(animals=3, turns=3, wandering=0.0))
    steps = shown_in(world, 50).steps
    first = world.task.manners.id(next(iter(ANIMALS)))
    guesses = steps.action[steps.action[:, 0] == world.task.manners.id("guess"), 1] - first
    assert set(guesses.tolist()) == {0, 1, 2} and world.spec.name == "text:questions(turns=3, wandering=0.0, animals=3)"
    assert steps.reward.sum() == 50, "of three animals a question and two guesses are enough"


def test_a_world_that_hides_nothing_says_so():
    with pytest.raises(UserError, match="text:echo hides nothing"):
        _ = Spoken(Echo(), told=True).spec
    assert (np.asarray(jax.jit(lambda: Questions().hidden(Questions().begin(key_of(0))[0]))()) >= 0).all()
