"""Directions task: one way to each place, and the shares of what the demonstrator knows."""

from __future__ import annotations

import dataclasses
import itertools

import jax
import numpy as np
import pytest

from thespis.core.laws.environments import check_environment
from thespis.envs.text.task import TextEnv
from thespis.papers.dr_po.envs import Directions
from thespis.runtime.keys import seed_key

SMALL = Directions(num_places=3, num_crossings=2, num_streets=3)


def test_one_response_to_each_prompt_is_rewarded():
    """All responses of at most three tokens."""
    size = SMALL.task_spec.vocabulary.size
    responses = np.array(list(itertools.product(range(-1, size), repeat=3)), "int32")
    step = jax.jit(jax.vmap(lambda place, x: SMALL.step(place, x, seed_key(0))[1].reward, (None, 0)))
    for place, way in enumerate(SMALL.ways):
        rewards = np.asarray(step(place, responses))
        assert rewards.sum() == 1
        np.testing.assert_array_equal(responses[rewards.argmax()], way)
        names = [SMALL.task_spec.vocabulary.words[token] for token in way]
        assert [name[-1] for name in names[:-1]] == ["1", "2"] and names[-1] == "<end>"


def test_ways_differ_and_are_always_the_same():
    ways = Directions().ways
    assert len({tuple(way) for way in ways.tolist()}) == 8
    np.testing.assert_array_equal(ways, Directions().ways)
    assert (ways != Directions(seed=1).ways).any()


def test_demonstrator_knows_the_way_in_a_share_of_its_responses():
    task = Directions(demonstrator_noise=0.6, informed_share=0.25)
    keys = jax.random.split(seed_key(0), 4_000)
    place = np.arange(4_000) % task.num_places
    responses = np.asarray(jax.jit(jax.vmap(task.demonstrator_response))(place, keys))
    is_right = responses == task.ways[place]
    assert is_right[:, -1].all()
    street_probability = 1 - 0.6 * (1 - 1 / 4)
    expected = 0.25 + 0.75 * street_probability**8
    assert is_right.all(axis=1).mean() == pytest.approx(expected, abs=0.025)
    assert is_right[:, 3].mean() == pytest.approx(0.25 + 0.75 * street_probability, abs=0.025)
    informed = dataclasses.replace(task, informed_share=1.0)
    responses = np.asarray(jax.jit(jax.vmap(informed.demonstrator_response))(place, keys))
    np.testing.assert_array_equal(responses, task.ways[place])


def test_task_follows_the_laws_of_environments():
    check_environment(TextEnv(SMALL))


@pytest.mark.parametrize("settings", [{"num_places": 11}, {"num_streets": 1}])
def test_sizes_without_names_are_refused(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        Directions(**settings)
