"""Debate: verdicts against the judge in NumPy, accuracy of the judge against chance, and rules of the game."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.actors.tree_search import GameModel, GumbelSearch
from thespis.core.laws.components import check_environment
from thespis.envs.games.self_play import SelfPlayEnv
from thespis.papers.debate.envs import Debate, DebateState, SingleSpeaker
from thespis.papers.debate.judge import (
    NUM_LABELS,
    NUM_PIXELS,
    load_digit_split,
    random_pixel_judge_accuracy,
    sample_pixels,
    trained_judge,
)
from thespis.papers.debate.measures import debate_questions
from thespis.runtime.keys import seed_key

DEBATE = Debate(2)


def reference_payoffs(question: DebateState, first: int) -> np.ndarray:
    """In NumPy: payoffs (1 or -1) of the first player for each pixel that the second player reveals after ``first``."""
    judge, image, claims = trained_judge(2), np.asarray(question.image), np.asarray(question.claims)
    payoffs = []
    for second in range(NUM_PIXELS):
        inputs = np.zeros((2, NUM_PIXELS))
        inputs[0, [first, second]], inputs[1, [first, second]] = image[[first, second]], 1
        logits = judge.output_weights @ np.maximum(judge.hidden_weights @ inputs.reshape(-1) + judge.hidden_bias, 0)
        payoffs.append(1 if logits[claims[0]] > logits[claims[1]] else -1)
    return np.array(payoffs)


@pytest.mark.slow
def test_payoffs_match_the_judge_and_search_finds_the_best_last_move():
    questions = [jax.tree.map(lambda x, row=row: x[row], debate_questions(0, 2)) for row in (0, 4, 9, 15)]
    firsts = [int(np.argmax(np.asarray(question.image))) for question in questions]
    states = [DEBATE.step(q, jnp.int32(first), seed_key(0)) for q, first in zip(questions, firsts, strict=True)]
    state = jax.tree.map(lambda *x: jnp.stack(x), *states)
    step_every_pixel = jax.vmap(jax.vmap(DEBATE.step, in_axes=(None, 0, None)), in_axes=(0, None, None))
    ends = step_every_pixel(state, jnp.arange(NUM_PIXELS), seed_key(0))
    payoffs = np.asarray(jax.vmap(jax.vmap(DEBATE.rewards))(ends))
    legal = np.asarray(jax.vmap(DEBATE.action_mask)(state))
    expected = np.stack([reference_payoffs(q, first) for q, first in zip(questions, firsts, strict=True)])
    assert (payoffs[..., 0] == expected)[legal].all() and (payoffs[..., 0] == -payoffs[..., 1])[legal].all()

    model = GameModel(DEBATE, lambda obs: (jnp.zeros(NUM_PIXELS), jnp.zeros(())))
    search = GumbelSearch(1.0, 0.0, num_simulations=NUM_PIXELS, max_num_considered_actions=NUM_PIXELS)
    moves = np.asarray(search(model, model.evaluate(state), jnp.asarray(legal), seed_key(1)).action)
    best = np.where(legal, -expected, -2).max(axis=1)
    assert (-expected[np.arange(4), moves] == best).all() and set(best) == {1}


@pytest.mark.slow
def test_judge_beats_chance_and_uses_revealed_pixels_only():
    judge, test_data = trained_judge(2), load_digit_split(train=False)
    assert 0.25 < random_pixel_judge_accuracy(judge, 2, test_data, seed_key(0)) < 0.4, (
        "two of 64 pixels carry little information, but some"
    )
    image = jnp.asarray(test_data.images[0])
    revealed = sample_pixels(image, 5, seed_key(2))
    assert revealed.sum() == 5 and (image > 0)[revealed].all()
    changed_image = jnp.where(revealed, image, 1.0 - image)
    assert (judge(image, revealed) == judge(changed_image, revealed)).all()


@pytest.mark.slow
def test_order_of_players_and_legal_pixels():
    state = DEBATE.init(seed_key(3))
    assert state.claims[0] != state.claims[1] and (DEBATE.action_mask(state) == (state.image > 0)).all()
    own_claims, other_claims = (
        DEBATE.observe(state, jnp.int32(player))["claims"].reshape(2, NUM_LABELS) for player in (0, 1)
    )
    assert (own_claims == other_claims[::-1]).all() and own_claims[0, state.claims[0]] == 1
    pixel = int(jnp.argmax(state.image))
    second_state = DEBATE.step(state, jnp.int32(pixel), seed_key(0))
    assert (
        not DEBATE.action_mask(second_state)[pixel]
        and not DEBATE.is_terminal(second_state)
        and (DEBATE.rewards(second_state) == 0).all()
    )
    assert [
        int(game.current_player(p)) for game in (DEBATE, Debate(2, SingleSpeaker())) for p in (state, second_state)
    ] == [
        0,
        1,
        0,
        0,
    ]
    end = DEBATE.step(second_state, jnp.argmax(DEBATE.action_mask(second_state)).astype("int32"), seed_key(0))
    assert DEBATE.is_terminal(end) and (DEBATE.step(end, jnp.int32(0), seed_key(0)).revealed == end.revealed).all()


def test_each_player_has_the_true_claim_about_equally_often():
    data = load_digit_split(train=True)
    states = jax.vmap(DEBATE.init)(jax.random.split(seed_key(4), 200))
    image_index = jnp.argmax((states.image[:, None] == data.images).all(axis=-1), axis=1)
    first, second = (states.claims == jnp.asarray(data.labels)[image_index][:, None]).T
    assert (first ^ second).all() and 70 < first.sum() < 130
    questions = debate_questions(1, 3)
    assert (questions.claims[:, 1].reshape(3, 9) == load_digit_split(train=False).labels[:3, None]).all()
    assert all(len(set(row)) == 9 for row in np.asarray(questions.claims[:, 0].reshape(3, 9)))


@pytest.mark.slow
@pytest.mark.parametrize("speakers", [DEBATE.speaker_order, SingleSpeaker()])
def test_contract(speakers):
    check_environment(SelfPlayEnv(Debate(2, speakers)))
