"""Online preference optimization: pairs, the optimum of each loss by enumeration, the opponent, and learning."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thespis
from thespis.core.contracts import Mode
from thespis.core.records import Batch, View
from thespis.data.feeds import Episodes
from thespis.envs.text.choice import Choice
from thespis.envs.text.task import TextEnv
from thespis.feedback.win_rate import ChoiceJudge, WinRate
from thespis.learners.language.dialogues import Dialogues
from thespis.learners.language.preference_losses import (
    DNOLoss,
    IPOLoss,
    NashMDLoss,
    RegressionLoss,
    ResponseScores,
    SigmoidLoss,
    SimPOLoss,
    SPPOLoss,
)
from thespis.methods.language.online_dpo import OnlineDPO, ReferenceSampledDPO, make_pairs
from thespis.nets.decoder import DecoderConfig, init_decoder
from thespis.nets.geometric_mixture import GeometricMixture
from thespis.objectives import preference_games as games
from thespis.papers.on_policy_negative_gradient_study.parts import LikelihoodLoss
from thespis.runtime.keys import seed_key
from thespis.training.components import with_array_leaves
from thespis.training.data_sources import demonstration_dataset

TABLE = jnp.asarray(games.cyclic_preferences(5, seed=4))
TASK = Choice(num_words=3, strength=1.0, noise=0.0)
ENV = TextEnv(TASK)
SMALL = {"model": "blank", "num_layers": 1, "hidden_size": 32}


def scores_of(returns):
    count = len(returns)
    values = jnp.arange(count, dtype="float32")
    return ResponseScores(-values, -2 * values, jnp.full(count, 2), jnp.asarray(returns, "float32"))


def test_neighbours_are_pairs_and_the_better_one_comes_first():
    first, second = make_pairs(scores_of([1, 2, 5, 3, 4, 4]), 2, "adjacent", is_ordered=True)
    np.testing.assert_array_equal(first.returns, [2, 5, 4])
    np.testing.assert_array_equal(second.returns, [1, 3, 4])
    np.testing.assert_array_equal(first.log_prob, [-1, -2, -4])
    first, second = make_pairs(scores_of([1, 2, 5, 3, 4, 4]), 2, "adjacent", is_ordered=False)
    np.testing.assert_array_equal(first.returns, [1, 5, 4])
    np.testing.assert_array_equal(second.log_prob, [-1, -3, -5])


def test_extremes_of_a_group():
    first, second = make_pairs(scores_of([1, 3, 0, 2, 5, 5, 4, 5]), 4, "extremes", is_ordered=True)
    np.testing.assert_array_equal(first.returns, [3, 5])
    np.testing.assert_array_equal(second.returns, [0, 4])
    np.testing.assert_array_equal(first.log_prob, [-1, -4])


def expected_loss(loss, logits, log_reference, first_probs, second_probs):
    """The expectation of a loss over all pairs, and over labels if the loss orders pairs; a response is one token."""
    log_policy = jax.nn.log_softmax(logits)
    count = len(logits)
    index = jnp.arange(count)
    rows, columns = (x.ravel() for x in jnp.meshgrid(index, index, indexing="ij"))
    weight = first_probs[rows] * second_probs[columns]

    def scores(index, returns):
        return ResponseScores(log_policy[index], log_reference[index], jnp.ones_like(index), returns)

    wins = TABLE[rows, columns]
    if not loss.orders_pairs:
        return jnp.sum(weight * loss(scores(rows, wins), scores(columns, 1 - wins)))
    ones, zeros = jnp.ones_like(wins), jnp.zeros_like(wins)
    return jnp.sum(
        weight
        * (
            wins * loss(scores(rows, ones), scores(columns, zeros))
            + (1 - wins) * loss(scores(columns, ones), scores(rows, zeros))
        )
    )


def policies():
    keys = jax.random.split(jax.random.key(3), 2)
    return [jax.nn.log_softmax(jax.random.normal(key, (5,))) for key in keys]


@pytest.mark.parametrize("loss", [IPOLoss(2.0), RegressionLoss(4.0)], ids=["ipo", "rebel"])
def test_regression_losses_have_their_optimum_at_a_step_of_mirror_descent(loss):
    """Over all pairs of the sampling policy: IPO with labels, REBEL with the difference of win rates, twice that."""
    log_policy, log_reference = policies()
    best = games.mirror_descent_step(log_reference, games.win_rates(TABLE, jnp.exp(log_policy)), 0.5)

    def gradient(logits):
        probs = jnp.exp(log_policy)
        return jax.grad(lambda x: expected_loss(loss, x, log_reference, probs, probs))(logits)

    np.testing.assert_allclose(gradient(best), 0.0, atol=1e-5)
    assert float(jnp.abs(gradient(log_policy)).max()) > 1e-2


@pytest.mark.parametrize("loss", [RegressionLoss(2.0), DNOLoss(2.0)], ids=["rebel", "dno"])
def test_regressions_on_exact_win_rates_have_their_optimum_at_a_step_of_mirror_descent(loss):
    """Returns are win rates against the sampling policy, as in a large group; the pairs' own distribution is any."""
    log_policy, log_reference = policies()
    wins = games.win_rates(TABLE, jnp.exp(log_policy))
    best = games.mirror_descent_step(log_reference, wins, 0.5)
    rows, columns = (x.ravel() for x in jnp.meshgrid(jnp.arange(5), jnp.arange(5), indexing="ij"))
    weight = jnp.linspace(0.5, 2.0, rows.size)

    def total(logits):
        log_probs = jax.nn.log_softmax(logits)
        scores = [ResponseScores(log_probs[i], log_reference[i], jnp.ones_like(i), wins[i]) for i in (rows, columns)]
        return jnp.sum(weight * loss(*scores))

    np.testing.assert_allclose(jax.grad(total)(best), 0.0, atol=1e-5)
    assert float(jnp.abs(jax.grad(total)(log_policy)).max()) > 1e-2


def test_sppo_fits_each_log_ratio_to_its_win_rate():
    loss = SPPOLoss(2.0, win_rates=True)
    wins = jnp.array([0.9, 0.5])
    fitted = ResponseScores((wins - 0.5) / 2.0 - 1.0, jnp.full(2, -1.0), jnp.ones(2, "int32"), wins)
    assert not loss.orders_pairs
    np.testing.assert_allclose(loss(fitted, fitted), 0.0, atol=1e-12)
    moved = dataclasses.replace(fitted, log_prob=fitted.log_prob + 0.1)
    np.testing.assert_allclose(loss(moved, fitted), 0.01, rtol=1e-4)


def test_nash_md_has_the_gradient_of_its_regularised_win_rate():
    log_policy, log_reference = policies()
    opponent = jnp.exp(games.geometric_mixture(log_policy, log_reference, 0.3))
    loss = NashMDLoss(0.2)
    sampled = jnp.exp(log_policy)
    gradient = jax.grad(lambda x: expected_loss(loss, x, log_reference, sampled, opponent))(log_policy)

    def objective(logits):
        policy = jax.nn.softmax(logits)
        kl = jnp.sum(policy * (jax.nn.log_softmax(logits) - log_reference))
        return policy @ games.win_rates(TABLE, opponent) - 0.2 * kl

    np.testing.assert_allclose(-gradient, jax.grad(objective)(log_policy), atol=1e-5)


def small_decoder(seed):
    config = DecoderConfig(
        vocab_size=7, hidden_size=16, intermediate_size=32, num_layers=2, num_heads=2, num_kv_heads=1
    )
    decoder = init_decoder(config, jax.random.key(seed))
    return jax.tree.map(lambda x: 20 * x if x.ndim > 1 else x, decoder)


@pytest.mark.long
def test_a_mixture_generates_with_the_product_of_both_probabilities():
    text = jnp.asarray(np.random.default_rng(2).integers(0, 7, (4, 6)), "int32")
    positions = jnp.asarray(np.tile(np.arange(6), (4, 1)), "int32")

    def generate(first, second, alternates):
        logs = [jax.nn.log_softmax(decoder.logits(decoder(text, positions))) for decoder in (first, second)]
        mixture = GeometricMixture(first, second, 0.25, alternates=alternates)
        layers = mixture.unstack_layers()
        features, cache = mixture.forward_with_cache(mixture.init_cache(4, 8), text[:, :4], positions[:, :4], layers)
        generated = []
        for step in (4, 5):
            block = slice(step, step + 1)
            features, cache = mixture.forward_with_cache(cache, text[:, block], positions[:, block], layers)
            generated.append(jax.nn.log_softmax(mixture.logits(features[:, 0])))
        return logs, generated

    for alternates in (False, True):
        program = jax.jit(lambda alternates=alternates: generate(small_decoder(0), small_decoder(1), alternates))
        logs, generated = jax.tree.map(np.asarray, program())
        for step, log_probs in zip((4, 5), generated, strict=True):
            both = 0.75 * logs[0][:, step] + 0.25 * logs[1][:, step]
            both -= np.log(np.exp(both).sum(axis=-1, keepdims=True))
            if alternates:
                both[::2] = logs[0][::2, step]
            np.testing.assert_allclose(log_probs, both, atol=1e-4)
        assert np.abs(logs[0] - logs[1]).max() > 0.1


def update_with(method, returns):
    """The update on logged dialogues of one word, with these returns and with sampled log-probabilities of -1."""
    method = with_array_leaves(method)
    steps = demonstration_dataset(ENV, len(returns)).steps
    steps = jax.tree.map(lambda x: jnp.asarray(x)[None, : len(returns)], steps)
    steps = dataclasses.replace(
        steps, reward=jnp.asarray(returns, "float32")[None], extras=jnp.full(steps.action.shape, -1.0)
    )
    state = method.init(ENV.spec, seed_key(1))
    batch = Batch(steps, jnp.ones((1, len(returns)), bool), (), jnp.zeros((), "int32"))
    return jax.jit(lambda s, b: method.update(s, b, seed_key(2)))(state, batch), state, batch


@pytest.mark.long
def test_the_loss_is_that_of_its_pairs_against_a_mixed_reference():
    method = OnlineDPO(loss_type=SigmoidLoss(0.5), behavior_weight=0.25, **SMALL)
    (_, report), state, batch = update_with(method, [0.0, 1.0, 2.0, 2.0, 3.0, 1.0])
    dialogues = Dialogues.from_transitions(batch.steps, batch.mask)
    log_probs = dialogues.response_log_probs(state.model, method.sampler)[0].sum(axis=(0, 2))
    ratio = log_probs - (0.75 * log_probs + 0.25 * -2.0)  # the reference is the initial model; two tokens of -1
    losses = [-jax.nn.log_sigmoid(0.5 * (ratio[i] - ratio[j])) for i, j in ((1, 0), (4, 5))]
    assert float(report.metrics["policy_loss"]) == pytest.approx(float(sum(losses)) / 3, rel=1e-4)
    assert float(report.metrics["ties"]) == pytest.approx(1 / 3)


def test_off_policy_pairs_are_sampled_by_the_reference():
    method = ReferenceSampledDPO(**SMALL)
    state = method.init(ENV.spec, seed_key(1))
    state = dataclasses.replace(state, model=small_decoder(0), reference=small_decoder(1))
    models = {mode: method.policy(state, mode).model for mode in Mode}
    assert models.pop(Mode.EXPLORE) is state.reference
    assert all(model is state.model for model in models.values())
    with pytest.raises(ValueError, match="SimPOLoss has no reference model"):
        ReferenceSampledDPO(loss_type=SimPOLoss())


def test_likelihood_of_the_preferred_has_no_gradient_for_the_rejected():
    chosen, rejected = scores_of([1, 1, 1]), scores_of([0, 0, 0])

    def total(log_probs):
        pair = [dataclasses.replace(x, log_prob=y) for x, y in zip((chosen, rejected), log_probs, strict=True)]
        return LikelihoodLoss()(*pair).sum()

    gradients = jax.grad(total)((chosen.log_prob, rejected.log_prob))
    np.testing.assert_array_equal(gradients, [[-1, -1, -1], [0, 0, 0]])


def word_probs(run):
    """Probabilities ``[seed, word]`` of the trained models."""
    method = run.method
    opening = ENV.task.init(seed_key(0))[1]
    text = jnp.full((1, ENV.spec.observation_space.max_length), -1).at[0, : len(opening)].set(opening)

    def probs(state):
        return method.policy(state, Mode.SAMPLE).action_probs(View(text, None))[0]

    return jax.vmap(probs)(run.states)


@pytest.mark.slow
def test_nash_md_stays_near_the_equilibrium_that_online_dpo_leaves(tmp_path):
    """Rock, paper, scissors: the equilibrium says each word equally often."""
    feedback = WinRate(ChoiceJudge(TASK), 2, samples_labels=True)
    settings = {"learning_rate": 3e-3, "feed": Episodes(group_size=2, num_envs=64), **SMALL}
    methods = {
        "nash-md": OnlineDPO(loss_type=NashMDLoss(0.1), opponent_weight=0.25, **settings),
        "online-dpo": OnlineDPO(loss_type=SigmoidLoss(0.1), ref_sync_interval=1, **settings),
    }
    left = {}
    for name, method in methods.items():
        run = thespis.train(
            method, env=ENV, feedback=feedback, steps=64 * 400, episodes=2, seeds=2, out=tmp_path / name
        )
        probs = word_probs(run)
        np.testing.assert_allclose(probs.sum(axis=1), 1.0, rtol=1e-5)
        left[name] = [float(games.exploitability(jnp.asarray(TASK.preferences[0]), policy)) for policy in probs]
    assert max(left["nash-md"]) < 0.15
    assert min(left["online-dpo"]) > 0.2


def test_pairs_need_even_groups():
    with pytest.raises(ValueError, match="even number"):
        OnlineDPO(feed=Episodes(group_size=3))
    with pytest.raises(ValueError, match="must be adjacent"):
        OnlineDPO(opponent_weight=0.5, pairs="extremes")
