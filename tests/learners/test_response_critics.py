"""A-LoL, OREO, direct advantage policy optimization and SPIN: losses, targets and phases, against explicit sums."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plain_decoder import logits_of

from thespis.actors.lm_policy import DialogueSpec, generate_responses
from thespis.core.records import Batch
from thespis.data.feeds import LoggedEpisodes
from thespis.envs.text.maze import Maze
from thespis.envs.text.task import TextEnv
from thespis.language.sampling import TemperatureSampler
from thespis.learners.language.dialogues import Dialogues, single_turn_dialogues, sum_from_token, sum_over_tokens
from thespis.learners.language.lm_offline import OfflineBatch
from thespis.learners.language.response_critics import ReferenceCritic, SoftValueCritic, SuccessCritic
from thespis.methods.language.spin import SPIN
from thespis.papers.a_lol.method import ALoL, SequenceRatio, TokenRatio
from thespis.papers.direct_advantage_policy_optimization.method import DirectAdvantagePolicyOptimization
from thespis.papers.oreo.method import OREO
from thespis.runtime.keys import fold, seed_key
from thespis.training.components import with_array_leaves
from thespis.training.data_sources import demonstration_dataset

ENV = TextEnv(Maze(size=2, max_turns=4, demonstrator_random_cells=1.0))
SMALL = {"model": "blank", "num_layers": 1, "hidden_size": 32}


@pytest.fixture(scope="module")
def batch():
    """Dialogues of a demonstrator, some of which fail."""
    source = LoggedEpisodes(batch_size=5).make_sampler(demonstration_dataset(ENV, 40).steps)
    return jax.jit(lambda key: source.sample(key))(seed_key(3))


@jax.jit
def log_ratios(model, reference, steps, mask):
    """Dialogues, reference log-probabilities and log-ratios ``[time, row, token]`` (zero where masked)."""
    dialogues = Dialogues.from_transitions(steps, mask)
    reference_log_probs = dialogues.response_log_probs(reference, TemperatureSampler())[0]
    return (
        dialogues,
        reference_log_probs,
        jnp.where(
            dialogues.response_mask,
            dialogues.response_log_probs(model, TemperatureSampler())[0] - reference_log_probs,
            0.0,
        ),
    )


@jax.jit
def weighted_gradient(model, dialogues, weights):
    """The model's gradient, from a loss's derivative by each log-probability."""
    return jax.grad(lambda m: jnp.sum(weights * dialogues.response_log_probs(m, TemperatureSampler())[0]))(model)


def offline_batch(method, state, steps, mask, values):
    """An offline batch, and log-ratios of the model to its reference."""
    assert float(method.sampler.temperature) == 1.0
    dialogues, reference_log_probs, ratio = log_ratios(state.model, state.reference, steps, mask)
    return OfflineBatch(
        dialogues, reference_log_probs, values, steps, state.dialogue_spec, state.reference, seed_key(5)
    ), np.asarray(ratio)


@functools.cache
def cached_init_state(kind, critic):
    """Initial state, cached by the types of method and critic."""
    method = with_array_leaves(kind(**SMALL, critic=critic()) if critic is not None else kind(**SMALL))
    return jax.jit(lambda key: method.init(ENV.spec, key))(seed_key(1))


def init_state(method):
    kind = type(method.critic) if any(f.name == "critic" for f in dataclasses.fields(method)) else None
    state = cached_init_state(type(method), kind)
    model = jax.tree.map(lambda x: jnp.asarray(np.float32(1.2) * np.asarray(x)), state.model)
    return with_array_leaves(method), dataclasses.replace(state, model=model)


def random_values(steps, seed=0):
    time, rows, width = steps.action.shape
    return np.random.default_rng(seed).uniform(0, 1, (time + 1, rows, width)).astype("float32")


@pytest.mark.long
@pytest.mark.parametrize("ratio", [SequenceRatio(0.3), TokenRatio(0.3), None], ids=lambda x: type(x).__name__)
@pytest.mark.parametrize("prioritised", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_lol_weights_by_positive_advantages(batch, ratio, prioritised):
    steps, mask = batch
    method, state = init_state(ALoL(**SMALL, importance_ratio=ratio, prioritized=prioritised))
    values = np.broadcast_to(random_values(steps)[:1, :, :1], random_values(steps).shape)
    offline, ratios = offline_batch(method, state, steps, mask, values)
    gradient = jax.jit(lambda model, offline: jax.grad(lambda m: method.compute_loss(m, offline)[0])(model))(
        state.model, offline
    )
    real, returns = (
        np.asarray(offline.dialogues.response_mask),
        np.asarray(jax.jit(lambda dialogues: dialogues.returns)(offline.dialogues)),
    )
    advantage = np.maximum(returns - values[0, :, 0], 0)
    assert (advantage > 0).any() and (advantage == 0).any()
    weights = np.zeros(real.shape, "float32")
    for row in range(len(advantage)):
        weight = {
            "SequenceRatio": np.clip(np.exp(ratios[:, row].sum()), 0.7, 1.3),
            "TokenRatio": np.clip(np.exp(ratios[:, row]), 0.7, 1.3),
            "NoneType": 1.0,
        }[type(ratio).__name__]
        fraction = advantage[row] / advantage.sum() if prioritised else 1 / len(advantage)
        weights[:, row] = np.where(real[:, row], -fraction * advantage[row] * weight, 0.0)
    expected = weighted_gradient(state.model, offline.dialogues, weights)
    for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


@pytest.mark.long
def test_a_value_head_that_stays_at_zero_weights_by_returns(batch):
    """Without importance ratios that is weighted behavior cloning, with them the paper's R-LoL."""
    steps, mask = batch
    method, state = init_state(ALoL(**SMALL, critic=ReferenceCritic(1, 0.0), importance_ratio=None, prioritized=False))
    dialogues, *_ = log_ratios(state.model, state.reference, steps, mask)
    critic, values, _ = method.critic.update(state.critic, state.reference, dialogues, (), jnp.asarray(0), seed_key(0))
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(critic[0])) and not np.any(values)
    offline, _ = offline_batch(method, state, steps, mask, np.asarray(values))
    log_probs = np.asarray(dialogues.response_log_probs(state.model, TemperatureSampler())[0])
    real, rewards = np.asarray(dialogues.response_mask), np.asarray(dialogues.reward)
    losses = [-rewards[:, row].sum() * log_probs[:, row][real[:, row]].sum() for row in range(real.shape[1])]
    np.testing.assert_allclose(float(method.compute_loss(state.model, offline)[0]), np.mean(losses), rtol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("turns", [False, True])
def test_oreo_loss_is_zero_where_the_soft_bellman_equation_holds(batch, turns):
    """The loss as in the paper, step by step; with the critic's target as values it is zero."""
    steps, mask = batch
    beta = 0.2
    method, state = init_state(OREO(**SMALL, critic=SoftValueCritic(beta, turn_level=turns), kl_coef=0.0))
    values = random_values(steps)
    offline, ratio = offline_batch(method, state, steps, mask, values)
    real = np.asarray(offline.dialogues.response_mask)
    steps, mask, errors = *jax.tree.map(np.asarray, (steps, mask)), []
    for row in range(mask.shape[1]):
        order = [(t, i) for t in range(mask.shape[0]) for i in range(real.shape[2]) if real[t, row, i]]
        for n, (t, i) in enumerate(order):
            if turns and i > 0:
                continue
            reward_to_go = float(np.where(mask, steps.reward, 0)[t:, row].sum())
            ratio_to_go = sum(ratio[u, row, j] for u, j in order[n:])
            errors.append(float(values[t, row, i]) - reward_to_go + beta * ratio_to_go)

    @jax.jit
    def losses(offline, ratio):
        target = offline.dialogues.rewards_to_go[..., None] - beta * sum_from_token(
            ratio, offline.dialogues.response_mask
        )
        consistent_values = jnp.concatenate([target, jnp.zeros_like(target[:1])])
        offline_batches = offline, dataclasses.replace(offline, values=consistent_values)
        return [method.compute_loss(state.model, offline)[0] for offline in offline_batches]

    loss, consistent_loss = map(float, losses(offline, ratio))
    assert loss == pytest.approx(np.mean(np.square(errors)), rel=1e-4)
    assert consistent_loss == pytest.approx(0, abs=1e-8)


@pytest.mark.long
def test_oreo_differentiates_each_step_by_its_own_ratio(batch):
    steps, mask = batch
    method, state = init_state(OREO(**SMALL, critic=SoftValueCritic(0.2), kl_coef=0.0))
    values = random_values(steps)
    offline, ratio = offline_batch(method, state, steps, mask, values)

    @jax.jit
    def both(model, offline, ratio):
        dialogues = offline.dialogues
        later = sum_from_token(ratio, dialogues.response_mask) - ratio
        errors = jnp.where(
            dialogues.response_mask,
            offline.values[:-1] - dialogues.rewards_to_go[..., None] + 0.2 * (ratio + later),
            0.0,
        )
        # the derivative of a square, with later tokens constant
        weights = 2 * errors * 0.2 / dialogues.response_mask.sum()
        return jax.grad(lambda m: method.compute_loss(m, offline)[0])(model), weights

    gradient, weights = both(state.model, offline, ratio)
    for a, b in zip(
        *map(jax.tree.leaves, (gradient, weighted_gradient(state.model, offline.dialogues, weights))), strict=True
    ):
        np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.long
def test_direct_advantages_are_differences_of_success(batch):
    steps, mask = batch
    method, state = init_state(DirectAdvantagePolicyOptimization(**SMALL, beta=0.5))

    @jax.jit
    def critic_values(model, dialogues):
        return (
            method.critic.values(
                method.critic.init_from(model, DialogueSpec.from_spec(ENV.spec), seed_key(0)), (), dialogues
            )
            + 0.0
        )

    dialogues = log_ratios(state.model, state.reference, steps, mask)[0]
    values, alive = np.asarray(critic_values(state.model, dialogues)), np.asarray(dialogues.alive)
    steps, mask = jax.tree.map(np.asarray, (steps, mask))
    assert (values[:-1][alive] == 0.5).all()  # an untrained critic
    offline, ratio = offline_batch(method, state, steps, mask, values)
    losses = []
    for row in range(mask.shape[1]):
        turns = int(alive[:, row].sum())
        for t in range(turns):
            next_value = 0.5 if t + 1 < turns else 0.0
            advantage = float(steps.reward[t, row]) + next_value - 0.5
            losses.append(0.5 * (advantage / 0.5 - ratio[t, row].sum()) ** 2)
    loss = jax.jit(lambda model, offline: method.compute_loss(model, offline)[0])(state.model, offline)
    assert float(loss) == pytest.approx(np.mean(losses), rel=1e-4)


@pytest.mark.long
@pytest.mark.parametrize(
    "critic_config",
    [ReferenceCritic(400, 3e-2), SuccessCritic(1.0, 400, 3e-3), SoftValueCritic(0.0, learning_rate=3e-3)],
)
def test_critics_fit_a_few_dialogues(batch, critic_config):
    """The loss of each critic falls on a few dialogues that differ in their prompts."""
    steps, mask = batch
    _, state = init_state(OREO(**SMALL))
    dialogues = log_ratios(state.model, state.reference, steps, mask)[0]
    reference, ratio = state.reference, jnp.zeros(dialogues.responses.shape)

    def step(critic, index):
        critic, _, metrics = critic_config.update(critic, reference, dialogues, ratio, index, seed_key(0))
        return critic, metrics["critic_loss"]

    _, losses = jax.jit(lambda critic: jax.lax.scan(step, critic, jnp.arange(150)))(
        critic_config.init_from(state.model, state.dialogue_spec, seed_key(0))
    )
    assert float(losses[-1]) < 0.5 * float(losses[0])


@pytest.mark.long
@pytest.mark.parametrize("kind", [ALoL, DirectAdvantagePolicyOptimization])
def test_critic_is_trained_before_the_model(batch, kind):
    critic = {ALoL: ReferenceCritic, DirectAdvantagePolicyOptimization: SuccessCritic}[kind](
        num_critic_pretrain_updates=2
    )
    method, state = init_state(kind(**SMALL, critic=critic))
    update = jax.jit(lambda *args: method.update(*args))

    def changed(old, new):
        return any(not np.array_equal(a, b) for a, b in zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True))

    for index in range(4):
        new, _ = update(state, Batch(*batch, (), jnp.int32(index)), seed_key(index))
        assert changed(state.critic, new.critic) == (index < 2) and changed(state.model, new.model) == (index >= 2)
        state = new


@pytest.mark.slow
def test_spin_prefers_demonstrations_to_opponent_responses(batch):
    steps, mask = batch
    method, state = init_state(SPIN(**SMALL))
    offline, _ = offline_batch(method, state, steps, mask, ())
    prompt, turn, rows = offline.sample_turn()
    assert bool(mask[turn, rows].all())
    opponent_responses = generate_responses(
        state.reference, method.sampler, state.dialogue_spec, prompt, fold(offline.key, "opponent")
    )
    margins = []
    for row in range(len(rows)):
        log_ratios = []
        for response in (steps.action[turn[row], row], opponent_responses[row]):
            dialogues = single_turn_dialogues(prompt[row][None], response[None], jnp.ones(1, bool))
            log_probs = [
                dialogues.response_log_probs(model, method.sampler)[0] for model in (state.model, state.reference)
            ]
            log_ratios.append(float(sum_over_tokens(log_probs[0] - log_probs[1], dialogues.response_mask)[0]))
        margins.append(log_ratios[0] - log_ratios[1])
    loss, metrics = method.compute_loss(state.model, offline)
    assert float(loss) == pytest.approx(np.mean(np.log1p(np.exp(-0.1 * np.array(margins)))), rel=1e-4)
    assert float(metrics["margin"]) == pytest.approx(np.mean(margins), rel=1e-3, abs=1e-4)


@pytest.mark.slow
def test_spin_can_begin_with_supervised_fine_tuning(batch):
    steps, mask = batch
    method, state = init_state(SPIN(**SMALL, num_sft_updates=2))
    offline, _ = offline_batch(method, state, steps, mask, ())
    log_probs, responses = offline.dialogues.response_log_probs(state.model, method.sampler)[0], steps.action
    likelihoods = [
        float(log_probs[place]) for place in zip(*np.nonzero(mask[..., None] & (responses >= 0)), strict=True)
    ]
    losses = [
        float(method.compute_loss(state.model, dataclasses.replace(offline, update_index=index))[0])
        for index in range(4)
    ]
    alone = float(SPIN(**SMALL).compute_loss(state.model, offline)[0])
    assert losses == pytest.approx([-np.mean(likelihoods)] * 2 + [alone] * 2, rel=1e-4)


@pytest.mark.slow
def test_opponent_responses_have_the_models_probabilities():
    """First tokens of responses to one prompt are as frequent as the model's probabilities."""
    method, state = init_state(SPIN(**SMALL))
    length = ENV.spec.observation_space.max_length
    prompt = jnp.full((4000, length), -1).at[:, :4].set(jnp.array([4, 5, 6, 3]))
    responses = jax.jit(
        lambda model: generate_responses(model, method.sampler, state.dialogue_spec, prompt, seed_key(0))
    )(state.model)
    probs = jax.nn.softmax(logits_of(state.model, jnp.array([4, 5, 6, 3]))[-1])
    np.testing.assert_allclose(np.bincount(responses[:, 0], minlength=len(probs)) / 4000, probs, atol=0.03)
