"""Decoupled Q-learning (DecQN, REValueD): targets, losses and greedy actions, against all action vectors enumerated."""

from __future__ import annotations

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import synthetic_batches
from small_envs import BOX, Walk

from thespis.cli.doctor_checks.probe_training import train_and_evaluate
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.laws.random_samples import random_transitions
from thespis.core.records import Batch, EnvSpec
from thespis.core.spaces import Box, Discrete, MultiDiscrete, unscale_action
from thespis.data.feeds import Replay
from thespis.envs.probes.probe import KnownValue, Probe
from thespis.learners.off_policy.critic_updates import n_step_batch
from thespis.learners.optim.optimizers import Adam
from thespis.objectives.value_losses import huber_loss
from thespis.papers.revalued.decoupled_q import (
    DiscretizedActions,
    EnsembleMeanTarget,
    MemberTarget,
    UtilityPenalty,
    discretize_actions,
    fit_utilities,
    utility_targets,
)
from thespis.papers.revalued.envs import Levers
from thespis.papers.revalued.method import DecQN, REValueD

KEY, ROWS, MEMBERS = jax.random.key(0), 5, 3
VECTOR = MultiDiscrete((2, 4, 3))
SPEC = Walk(VECTOR, legal=True).spec
METHOD = DecQN(hidden_sizes=(6,), ensemble_size=MEMBERS, discount=0.9, feed=Replay(batch_size=ROWS))
ALL_ACTIONS = list(itertools.product(*map(range, VECTOR.nvec)))
STARTS = np.array([0, 2, 6])


def critics_and_batch():
    state, other = synthetic_batches.init_state(METHOD, SPEC), synthetic_batches.init_state(METHOD, SPEC, 1)
    steps = random_transitions(SPEC, np.random.default_rng(0), 1, ROWS)
    return state.critic, other.critic, Batch(steps, jnp.ones((1, ROWS), bool), (), jnp.zeros((), "int32"))


def utilities(critics, observation):
    return np.asarray(jax.vmap(lambda critic: critic.q_values(observation))(critics), np.float64)


def legal_actions(legal):
    return [v for v in ALL_ACTIONS if all(legal[STARTS + np.array(v)])]


def best_action(values, legal):
    """The legal action vector with the greatest mean utility."""
    return max(legal_actions(legal), key=lambda v: values[STARTS + np.array(v)].mean())


@pytest.mark.long
@pytest.mark.parametrize("target_distribution", [MemberTarget(), MemberTarget(double_q=False), EnsembleMeanTarget()])
def test_targets_use_the_best_action_vector(target_distribution):
    online, target, batch = critics_and_batch()
    data = n_step_batch(batch, 0.9)
    targets = utility_targets(target_distribution, online, target, data)
    assert not np.all(data.next_view.action_mask) and np.any(data.discount == 0)
    for row in range(ROWS):
        obs, legal = data.next_view.observation[row], np.asarray(data.next_view.action_mask[row])
        online_utilities, target_utilities = utilities(online, obs), utilities(target, obs)
        for i in range(MEMBERS):
            if isinstance(target_distribution, EnsembleMeanTarget):
                chosen, next_values = best_action(target_utilities.mean(axis=0), legal), target_utilities.mean(axis=0)
            else:
                chosen, next_values = (
                    best_action((online_utilities if target_distribution.double_q else target_utilities)[i], legal),
                    target_utilities[i],
                )
            value = next_values[STARTS + np.array(chosen)].mean()
            expected = float(data.reward[row]) + float(data.discount[row]) * value
            assert float(targets[row, i]) == pytest.approx(expected, abs=1e-5)


@pytest.mark.long
def test_loss_and_utility_penalty_match_numpy():
    """Huber loss of the mean utility, and the penalty on changes of utilities, weighted by their errors."""
    online, target, batch = critics_and_batch()
    data, targets = n_step_batch(batch, 0.9), 3.0 * jax.random.normal(KEY, (ROWS, MEMBERS))
    losses, penalties = np.zeros(MEMBERS), np.zeros(MEMBERS)
    for row in range(ROWS):
        indices = STARTS + np.asarray(data.action[row])
        new, old = (utilities(c, data.view.observation[row])[:, indices] for c in (online, target))
        y = np.asarray(targets[row], np.float64)
        error = np.abs(new.mean(axis=1) - y)
        losses += np.where(error < 1, error**2 / 2, error - 0.5) / ROWS
        weight = 1 - np.exp(-np.abs(y[:, None] - new))
        penalties += 0.7 * (weight * (old - new) ** 2).mean(axis=1) / ROWS
    optimizer = Adam(1e-3)
    arguments = optimizer, online, target, optimizer.init(online), data, targets, huber_loss
    metrics = fit_utilities(*arguments, UtilityPenalty(0.7))[2]
    assert float(metrics["critic_loss"]) == pytest.approx(losses.mean(), rel=1e-4)
    assert float(metrics["held_loss"]) == pytest.approx(penalties.mean(), rel=1e-4)


def test_penalty_weights_have_no_gradient():
    """Gradient of the penalty: ``-2 w (old - new) / N`` with ``w = 1 - exp(-|target - new|)``."""
    new, old, target = jnp.array([[1.0, -2.0]]), jnp.array([[0.5, 3.0]]), jnp.array([2.0])
    gradient = jax.grad(lambda x: UtilityPenalty(1.0).penalty(x, lambda: old, target)[0])(new)[0]
    weight = 1 - np.exp(-np.array([1.0, 4.0]))
    np.testing.assert_allclose(gradient, -weight * np.array([-0.5, 5.0]), rtol=1e-5)
    assert float(UtilityPenalty(1.0).penalty(new, lambda: new, target)[0]) == 0.0


def test_bins_span_the_bounds():
    bins = DiscretizedActions(BOX, 3)
    assert bins.discrete_space == MultiDiscrete((3, 3))
    for choices in itertools.product(range(3), repeat=2):
        assert bins.encode_action(bins.decode_action(jnp.array(choices))).tolist() == list(choices)
    assert unscale_action(BOX, bins.decode_action(jnp.array([0, 2]))).tolist() == [-2.0, 1.5]
    assert bins.encode_action(jnp.array([-0.4, 0.6])).tolist() == [1, 2]  # the nearest bin
    square = DiscretizedActions(Box((2, 2), -1.0, 1.0), 2)
    assert square.decode_action(jnp.array([0, 1, 1, 0])).tolist() == [[-1.0, 1.0], [1.0, -1.0]]


def test_padded_table_has_a_row_per_dimension():
    values = jnp.arange(9.0)
    table = np.asarray(DiscretizedActions(VECTOR, 2).pad_table(values))
    assert [row[:n].tolist() for row, n in zip(table, VECTOR.nvec, strict=True)] == [[0, 1], [2, 3, 4, 5], [6, 7, 8]]
    assert (table[0, 2:] < -1e8).all() and (table[2, 3:] < -1e8).all()


@pytest.mark.long
def test_greedy_actions_are_the_best_vectors():
    method = dataclasses.replace(METHOD, final_epsilon=0.0)
    state = synthetic_batches.init_state(method, SPEC)
    view = jax.tree.map(lambda x: x[0], random_transitions(SPEC, np.random.default_rng(2), 1, 8).view)
    for mode, members in ((Mode.EXPLOIT, 1), (Mode.SAMPLE, MEMBERS)):
        policy = method.policy(state, mode)
        action, _, _ = method.act(policy, method.init_memory(policy, 8), view, KEY)
        for row in range(8):
            values = utilities(state.critic, view.observation[row])
            candidates = [values.mean(axis=0)] if members == 1 else list(values)
            assert tuple(action[row].tolist()) in {
                best_action(v, np.asarray(view.action_mask[row])) for v in candidates
            }


@pytest.mark.parametrize("space", [Discrete(3), Box((2,)), Box((1,), 0.0)])
def test_other_spaces_are_refused(space):
    with pytest.raises(UserError, match="revalued needs a MultiDiscrete action space, or a box with finite bounds"):
        REValueD().init(EnvSpec("other", Box((3,)), space), KEY)
    with pytest.raises(UserError, match="num_bins of 2 or more"):
        discretize_actions(BOX, 1, "decqn")


@pytest.mark.slow
@pytest.mark.parametrize("kind", [DecQN, REValueD])
def test_lever_values_are_learned(kind):
    """Values that are means of utilities are learned exactly."""
    env = Levers(num_levers=4, num_choices=3, num_cues=2, time_limit=10)

    def known(discount):
        cues, all_cues = jnp.eye(2), jnp.arange(2)
        targets = [env.target_positions(cue) for cue in all_cues]
        values = [
            float(env.optimal_q_value(cue, right, discount)) for cue, right in zip(all_cues, targets, strict=True)
        ]
        return [KnownValue(*k) for k in zip(np.asarray(cues), values, map(np.asarray, targets), strict=True)]

    feed = Replay(buffer_size=4_000, batch_size=64, learning_starts=64, num_envs=8)
    method = kind(
        learning_rate=3e-3,
        discount=0.9,
        hidden_sizes=(16,),
        ensemble_size=2,
        tau=0.1,
        epsilon_decay_updates=300.0,
        feed=feed,
    )
    result = train_and_evaluate(method, Probe("levers", env, "", known), 16_000, num_seeds=2)
    assert result.value_errors.max() < 0.02 and result.correct.all(), result.values
