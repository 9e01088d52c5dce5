"""Roll-outs of a guide: what is kept of a response, what it earns with the rest, and which tokens are learned."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.laws.environments import check_environment
from thespis.core.records import Batch, Transition, View
from thespis.data.feeds import Episodes
from thespis.envs.text.echo import Echo
from thespis.envs.text.task import TextEnv
from thespis.learners.language.policy_losses import PolicyGradient
from thespis.papers.dr_po.envs import Directions
from thespis.papers.rlgf.envs import GuideRollOutParams, GuideRollOuts
from thespis.papers.rlgf.method import GuideRollOutPPO
from thespis.runtime.keys import seed_key

TASK = Directions(num_places=2, num_crossings=3, num_streets=2)
GUIDE = TextEnv(dataclasses.replace(TASK, informed_share=1.0))
ENV = GuideRollOuts(TextEnv(TASK), GUIDE)
PROMPT_LENGTH, NUM_EPISODES = 3, 400
END = TASK.task_spec.vocabulary.eos_tokens[0]


def words(row: Any) -> tuple[int, ...]:
    return tuple(token for token in np.asarray(row).tolist() if token >= 0)


def play(share: float, respond: Any, env: GuideRollOuts = ENV) -> Any:
    """States before and after the responses, the responses, and what they earn."""
    params = GuideRollOutParams(jnp.float32(share))
    keys = jax.random.split(seed_key(0), NUM_EPISODES)
    state, first = jax.jit(jax.vmap(lambda key: env.reset(params, key)))(keys)
    action = respond(TASK.ways[np.asarray(state.dialogue.task_state)].copy())
    following, outcome = jax.jit(jax.vmap(env.step))(state, jnp.asarray(action, "int32"), keys)
    return jax.tree.map(np.asarray, (state, first, action, following, outcome))


def wrong_at(place: int) -> Any:
    """Responses with the other street at one crossing."""

    def respond(ways: np.ndarray) -> np.ndarray:
        first = TASK.task_spec.encode_word("a1") + 2 * place
        ways[:, place] = 2 * first + 1 - ways[:, place]
        return ways

    return respond


def kept_lengths(action: np.ndarray, following: Any) -> np.ndarray:
    """Tokens of each reply, which must be the first ones of the response."""
    lengths = []
    for response, transcript in zip(action, following.transcript, strict=True):
        said = words(response) if END in response else (*words(response), END)
        reply = words(transcript)[PROMPT_LENGTH + len(said) :]
        assert words(transcript)[PROMPT_LENGTH:] == (*said, *words(response)[: len(reply)])
        lengths.append(len(reply))
    return np.array(lengths)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_guide_that_knows_the_way_mends_what_comes_after_the_cut(place):
    """A wrong street costs the reward only if it is kept; every cut from 1 to n - 1 is equally frequent."""
    _, _, action, following, outcome = play(1.0, wrong_at(place))
    lengths = kept_lengths(action, following)
    np.testing.assert_array_equal(outcome.reward, (lengths <= place).astype("float32"))
    counts = np.bincount(lengths)
    assert counts[0] == 0 and len(counts) == 4 and counts[1:].min() > NUM_EPISODES / 3 * 0.8
    assert outcome.terminated.all()


def test_without_completion_it_is_the_environment():
    for share in (0.0, 0.5):
        state, _, action, following, outcome = play(share, wrong_at(2))
        lengths = kept_lengths(action, following)
        assert (lengths[~state.is_completed] == 0).all() and (outcome.reward[~state.is_completed] == 0).all()
        assert state.is_completed.mean() == pytest.approx(share, abs=0.08)


def test_responses_without_an_end_and_of_the_end_alone():
    def endless(ways: np.ndarray) -> np.ndarray:
        ways[:, 3] = ways[:, 0]
        return ways

    _, _, action, following, outcome = play(1.0, endless)
    assert (outcome.reward == 1).all(), "the guide says the end"
    assert set(kept_lengths(action, following)) == {1, 2, 3}
    _, _, action, following, outcome = play(1.0, lambda ways: np.where(np.arange(4) == 0, END, -1) + 0 * ways)
    assert (kept_lengths(action, following) == 0).all() and (outcome.reward == 0).all()


def test_only_the_kept_tokens_are_learned():
    """Gradients with other tokens after the cut are the same, and with other tokens before it are not."""
    method = GuideRollOutPPO(
        model="blank",
        num_layers=1,
        hidden_size=32,
        feed=Episodes(max_steps=1, num_envs=8),
        minibatch_size=8,
        num_epochs=1,
        objective=PolicyGradient(),
        kl_penalty=None,
        learning_rate=1e-2,
    )
    state = method.init(ENV.spec, seed_key(0))
    _, first, action, following, _ = play(1.0, wrong_at(2))
    rows = np.flatnonzero(kept_lengths(action, following) == 2)[:8]

    @jax.jit
    def learned(action: Any, next_observation: Any) -> Any:
        shape = (1, 8)
        false = jnp.zeros(shape, bool)
        steps = Transition(
            view=View(first.observation[rows][None]),
            action=action[None],
            reward=jnp.arange(8.0)[None],
            terminated=~false,
            truncated=false,
            next_view=View(next_observation[None]),
            is_first=~false,
            extras=jnp.zeros((*shape, 4)),
        )
        return method.update(state, Batch(steps, ~false, (), jnp.zeros((), "int32")), seed_key(1))[0].model

    def replay(place: int) -> Any:
        other = wrong_at(place)(action[rows].copy()) if place < 3 else action[rows]
        transcript = following.transcript[rows].copy()
        transcript[:, PROMPT_LENGTH : PROMPT_LENGTH + 4] = other
        transcript[:, PROMPT_LENGTH + 4 : PROMPT_LENGTH + 6] = other[:, :2]
        return jax.tree.leaves(learned(jnp.asarray(other), jnp.asarray(transcript)))

    for x, y in zip(replay(3), replay(2), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)
    assert max(float(np.abs(x - y).max()) for x, y in zip(replay(3), replay(1), strict=True)) > 1e-4


@pytest.mark.long
def test_environments_with_roll_outs_follow_the_laws():
    check_environment(ENV)


def test_guides_of_other_tasks_are_refused():
    with pytest.raises(ValueError, match="words"):
        GuideRollOuts(TextEnv(TASK), TextEnv(dataclasses.replace(TASK, num_places=3)))
    with pytest.raises(ValueError, match="one turn"):
        GuideRollOuts(TextEnv(Echo(max_turns=2)), TextEnv(Echo(max_turns=2)))
