"""Packing in text, and its goals in hindsight, against a plain implementation on words."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.laws.environments import check_environment
from thespis.envs.text.task import TextEnv
from thespis.papers.sac_glam.envs import PACKING, PAIRS, THINGS, PackingState, PackingTask
from thespis.runtime.keys import seed_key
from thespis.training import demonstrations

ENV = TextEnv(PackingTask(num_things=3, size=2))
WORDS = ENV.spec.action_space.vocabulary.words
CHOICES = THINGS[:3]
GOALS = [set(things) for size in (1, 2) for things in itertools.combinations(CHOICES, size)]
STEP = jax.jit(ENV.step)


def listed(things: set[str]) -> list[str]:
    """The things in the order of the list, and blanks."""
    return [thing for thing in CHOICES if thing in things] + ["_"] * (2 - len(things))


def encode(words: list[str]) -> np.ndarray:
    """Tokens of words, padded to the length of a transcript."""
    tokens = [WORDS.index(word) for word in words]
    return np.array(tokens + [-1] * (ENV.spec.observation_space.max_length - len(tokens)), "int32")


def play(goal: set[str], responses: tuple[list[str], ...]) -> tuple[list[np.ndarray], list[tuple[float, bool]]]:
    """Transcripts, rewards and ends of an episode in plain Python."""
    bag: set[str] = set()

    def describe() -> list[str]:
        return ["want", *listed(goal), "have", *(f"in-{x}" if x != "_" else x for x in listed(bag)), ">"]

    words = describe()
    transcripts, outcomes = [encode(words)], []
    for turn, response in enumerate(responses):
        if response[0] in CHOICES and response[1:] == ["<end>"]:
            bag.add(response[0])
        words = words + response + ([] if "<end>" in response else ["<end>"]) + describe()
        transcripts.append(encode(words))
        outcomes.append((float(bag == goal), bag == goal or turn == 1))
        if outcomes[-1][1]:
            break
    return transcripts, outcomes


@jax.jit
def start(goal):
    """The initial state for a goal."""
    dialogue, _ = ENV.reset((), seed_key(0))
    state = PackingState(goal, jnp.zeros_like(goal))
    opening = ENV.task._describe(state)
    transcript = jnp.full(ENV.spec.observation_space.max_length, -1, "int32").at[: opening.shape[0]].set(opening)
    return type(dialogue)(state, transcript, dialogue.turn)


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: " ".join(sorted(goal)))
def test_packing_matches_plain_python(goal):
    responses = [["tent", "<end>"], ["rope", "<end>"], ["lamp", "<end>"], ["rope", "lamp"], ["want", "<end>"]]
    rewards = set()
    for both in itertools.product(responses, repeat=2):
        transcripts, outcomes = play(goal, both)
        dialogue = start(np.array([thing in goal for thing in CHOICES]))
        for turn, (reward, over) in enumerate(outcomes):
            np.testing.assert_array_equal(dialogue.transcript, transcripts[turn])
            response = np.array([WORDS.index(word) for word in both[turn]], "int32")
            dialogue, timestep = STEP(dialogue, response, seed_key(turn))
            assert (float(timestep.reward), bool(timestep.terminated)) == (reward, over)
            np.testing.assert_array_equal(timestep.observation, transcripts[turn + 1])
            rewards.add(reward)
    assert rewards == {0.0, 1.0}


def test_relabeled_transcripts_match_those_played_with_the_new_goal():
    goals, outcomes_seen = ENV.spec.goal_relabeler, set()
    relabel, achieved = jax.jit(goals.relabel), jax.jit(goals.achieved_goal)
    for goal, things in itertools.product(GOALS, itertools.product(CHOICES, repeat=2)):
        responses = tuple([thing, "<end>"] for thing in things)
        transcripts, outcomes = play(goal, responses)
        for turn in range(1, len(transcripts)):
            assert achieved(transcripts[turn]).tolist() == [WORDS.index(x) for x in listed(set(things[:turn]))]
        for other in GOALS:
            expected, other_outcomes = play(other, responses[: len(outcomes)])
            new_goal = np.array([WORDS.index(x) for x in listed(other)], "int32")
            for turn, transcript in enumerate(transcripts):
                relabeled, reached = relabel(transcript, new_goal)
                np.testing.assert_array_equal(relabeled, expected[min(turn, len(expected) - 1)])
                assert bool(reached) == any(reward > 0 for reward, _ in other_outcomes[:turn])
                outcomes_seen.add(bool(reached))
    assert outcomes_seen == {False, True}


def test_goals_are_uniform():
    states, _ = jax.vmap(PackingTask().init)(jax.random.split(seed_key(0), 8_200))
    sets, counts = np.unique(np.asarray(states.goal), axis=0, return_counts=True)
    assert sets.shape == (41, 6) and abs(counts / 200 - 1).max() < 0.3


@pytest.mark.parametrize(("noise", "low", "high"), [(0.0, 1.0, 1.0), (1.0, 0.04, 0.08)])
def test_success_rates_of_demonstrators(noise, low, high):
    env = TextEnv(PackingTask(demonstrator_noise=noise))
    rewards = np.asarray(demonstrations.sample_demonstrations(env, 2_000)[3])
    assert low <= rewards.sum(axis=0).mean() <= high


def test_chance_with_bags_of_two_against_enumeration():
    """All goals with all pairs of responses, of which the second does not count once the goal is packed."""
    goals = [set(things) for size in (1, 2) for things in itertools.combinations(THINGS[:6], size)]
    pairs = list(itertools.product(THINGS[:6], repeat=2))
    chance = np.mean([goal in ({pair[0]}, set(pair)) for goal in goals for pair in pairs])
    rewards = np.asarray(demonstrations.sample_demonstrations(PAIRS, 8_000)[3])
    assert len(goals) == len(PAIRS.task.goals) == 21
    assert rewards.sum(axis=0).mean() == pytest.approx(chance, abs=0.012)


def test_contract():
    check_environment(PACKING)
