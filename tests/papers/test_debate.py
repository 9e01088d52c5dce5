"""Debate: verdicts and searches against the judge in NumPy, accuracy of the judge, and rules of the game."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thespis
from thespis.actors.tree_search import GameModel, GumbelSearch
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.laws.components import check_environment
from thespis.envs.games.self_play import SelfPlayEnv
from thespis.envs.registry import make_compiled
from thespis.papers.debate.envs import Debate, DebateState, SingleSpeaker
from thespis.papers.debate.judge import (
    NUM_LABELS,
    NUM_PIXELS,
    DigitDataset,
    load_digit_split,
    max_revealable_pixels,
    sample_pixels,
    trained_judge,
)
from thespis.papers.debate.measures import debate_questions, judge_margins, sample_digits
from thespis.papers.debate.search import PixelSearch
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


def some_question(lie: int, image: int) -> DebateState:
    """The start of a debate on one of the first held-out digits."""
    questions = debate_questions(0, DigitDataset(*(values[:2] for values in load_digit_split(train=False))))
    return jax.tree.map(lambda x: x[lie, image], questions)


def reference_values(judge, image, claims, shown: list[int], signs: list[int]) -> dict[int, float]:
    """In NumPy: margin for the player to move of each pixel, after the best moves of the players with these signs."""

    def margin(pixels: list[int]) -> float:
        inputs = np.zeros((2, NUM_PIXELS))
        inputs[0, pixels], inputs[1, pixels] = image[pixels], 1
        logits = judge.output_weights @ np.maximum(judge.hidden_weights @ inputs.reshape(-1) + judge.hidden_bias, 0)
        return float(logits[claims[0]] - logits[claims[1]])

    def value(pixels: list[int], signs: list[int]) -> float:
        if not signs:
            return margin(pixels)
        return signs[0] * max(signs[0] * value([*pixels, p], signs[1:]) for p in free if p not in pixels)

    free = [int(p) for p in np.flatnonzero(image)]
    return {p: signs[0] * value([*shown, p], signs[1:]) for p in free if p not in shown}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("game", "search_depth", "signs"),
    [
        (Debate(3), 2, [[1, -1], [-1, 1], [1]]),
        (Debate(3, SingleSpeaker()), 2, [[1, 1], [1, 1], [1]]),
        (Debate(2), 1, [[1], [-1]]),
    ],
)
def test_search_matches_enumeration(game, search_depth, signs):
    judge = trained_judge(game.num_pixels)
    env = SelfPlayEnv(game)
    method = PixelSearch(search_depth)
    policy = method.policy(method.init(env.spec, seed_key(0)), Mode.EXPLOIT)
    act = jax.jit(lambda view, key: method.act(policy, (), view, key)[0])
    for place in ((0, 0), (5, 1)):
        state, shown = some_question(*place), []
        for turn, ahead in enumerate(signs):
            action = act(jax.tree.map(lambda x: x[None], env.view(state)), seed_key(turn))
            pixel = int(action["seats"][0, game.current_player(state)])
            values = reference_values(judge, np.asarray(state.image), np.asarray(state.claims), shown, ahead)
            # A single speaker may reveal its best two pixels in either order: both are right.
            assert values[pixel] >= max(values.values()) - 1e-4 > np.median(list(values.values())) + 1e-2
            shown.append(pixel)
            state = game.step(state, jnp.int32(pixel), seed_key(0))
        assert int(game.rewards(state)[0]) == (1 if float(game.judge_margin(state)) > 0 else -1)


def test_random_pixels_are_legal_and_differ_between_streams():
    env = SelfPlayEnv(Debate(2))
    states = jax.vmap(env.game.init)(jax.random.split(seed_key(5), 60))
    views = jax.vmap(env.view)(states)
    choices = []
    for stream in (0, 1):
        method = PixelSearch(search_depth=0, stream=stream)
        policy = method.policy(method.init(env.spec, seed_key(0)), Mode.EXPLOIT)
        choices.append(np.asarray(method.act(policy, (), views, seed_key(1))[0]["seats"][:, 0]))
        assert (np.asarray(states.image)[np.arange(60), choices[-1]] > 0).all()
    assert (choices[0] != choices[1]).mean() > 0.8 and len(set(choices[0])) > 20


def test_search_needs_a_debate_and_sees_every_pixel_that_can_be_revealed():
    spec = make_compiled("pgx:tic_tac_toe").spec
    with pytest.raises(UserError, match="no debate"):
        PixelSearch().init(spec, seed_key(0))
    images = np.concatenate([load_digit_split(train).images for train in (True, False)])
    assert max_revealable_pixels() == max(int((image > 0).sum()) for image in images) <= NUM_PIXELS


def test_each_seed_has_its_own_digits_and_all_false_labels():
    samples = [sample_digits(seed, 30) for seed in (3, 3, 4)]
    assert (samples[0].images == samples[1].images).all() and (samples[0].images != samples[2].images).any()
    held_out = load_digit_split(train=False)
    for image, label in zip(samples[2].images, samples[2].labels, strict=True):
        matches = (held_out.images == image).all(axis=1)
        assert matches.any() and label in held_out.labels[matches]
    assert len({image.tobytes() for image in samples[2].images}) == 30


@pytest.mark.slow
def test_margins_are_those_of_played_games(tmp_path):
    run = thespis.train(
        PixelSearch(search_depth=1),
        "thespis.papers.debate.envs:DEBATE_4",
        steps=4,
        seeds=[1, 2],
        episodes=1,
        preset=None,
        evaluate_every=0,
        out=tmp_path / "run",
    )
    margins, judge = judge_margins(1, run), trained_judge(4)
    assert margins.shape == (2, 40, 9)
    digits = sample_digits(2, 40)
    image, label = digits.images[7], int(digits.labels[7])
    claims, shown = [(label + 3) % 10, label], []
    for turn in range(4):
        shown.append(reference_choice(judge, image, claims, shown, [1 if turn % 2 == 0 else -1]))
    state = DebateState(
        jnp.asarray(image), jnp.asarray(claims, "int32"), jnp.zeros(NUM_PIXELS, bool).at[jnp.array(shown)].set(True)
    )
    np.testing.assert_allclose(margins[1, 7, 2], -float(Debate(4).judge_margin(state)), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_payoffs_match_the_judge_and_search_finds_the_best_last_move():
    questions = [some_question(*place) for place in ((0, 0), (4, 0), (0, 1), (6, 1))]
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


def random_pixel_accuracy(judge, num_pixels: int, data: DigitDataset, key) -> float:
    """Share of images that the judge classifies correctly from ``num_pixels`` random pixels that are not 0."""

    def is_correct(image, label, key):
        return jnp.argmax(judge(image, sample_pixels(image, num_pixels, key))) == label

    keys = jax.random.split(key, len(data.labels))
    return float(jnp.mean(jax.vmap(is_correct)(jnp.asarray(data.images), jnp.asarray(data.labels), keys)))


@pytest.mark.slow
def test_judge_beats_chance_and_uses_revealed_pixels_only():
    judge, test_data = trained_judge(2), load_digit_split(train=False)
    assert 0.25 < random_pixel_accuracy(judge, 2, test_data, seed_key(0)) < 0.4, (
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
    digits = DigitDataset(*(values[:3] for values in load_digit_split(train=False)))
    questions = debate_questions(1, digits)
    assert questions.claims.shape == (9, 3, 2) and (questions.claims[..., 1] == digits.labels).all()
    assert all(len(set(lies)) == 9 for lies in np.asarray(questions.claims[..., 0].T))


@pytest.mark.slow
@pytest.mark.parametrize("speakers", [DEBATE.speaker_order, SingleSpeaker()])
def test_contract(speakers):
    check_environment(SelfPlayEnv(Debate(2, speakers)))
