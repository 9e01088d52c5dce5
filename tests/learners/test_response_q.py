"""Off-policy turn critic: token positions, targets, replay and advantages, against loops and known values."""

from __future__ import annotations

import dataclasses
import itertools
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_dialogues import DIALOGUE_SPEC, KEY, MODEL, TIME, make_dialogues
from synthetic_batches import quick_key

from thespis.core.errors import UserError
from thespis.core.laws.assertions import to_numpy
from thespis.curricula.fixed import FixedCurriculum
from thespis.data.feeds import Episodes
from thespis.envs.text.maze import Maze
from thespis.envs.text.task import TextEnv
from thespis.feedback.environment import EnvironmentReward
from thespis.learners.language.dialogues import SampledDialogues, random_prompts
from thespis.learners.language.lm_agent import add_value_head
from thespis.learners.language.lm_policy_gradient import LMPolicyGradientState
from thespis.learners.language.turn_critic import OffPolicyTurnCritic, TurnQVNetwork
from thespis.methods.language.archer import ArCHer
from thespis.papers.sweet_rl.method import SWEET
from thespis.runs.config import apply_settings
from thespis.training.compiled_loop import CompiledLoop
from thespis.training.components import Components, zero_transition


def random_critic() -> TurnQVNetwork:
    rng = np.random.default_rng(3)
    heads = [rng.normal(size=shape).astype("float32") for shape in ((2, 32), (2, 32), (2, 2))]
    return TurnQVNetwork(MODEL, *jax.device_put(heads))


@pytest.mark.long
def test_q_reads_the_last_token_and_v_the_last_prompt_token():
    dialogues = make_dialogues([3, 8])
    responses = np.array(dialogues.responses)
    responses[0, :, 1] = -1  # a response of one token
    dialogues = dataclasses.replace(dialogues, responses=jax.device_put(responses))

    @jax.jit
    def both(critic, dialogues):
        tokens = dialogues.transcript[1]
        return critic(dialogues), {end: critic.model(tokens[:end], jnp.arange(end))[-1] for end in (2, 3, 5, 7, 8)}

    critic = random_critic()
    (q, v), features = jax.tree.map(np.asarray, both(critic, dialogues))
    assert q.shape == (2, TIME, 2) and v.shape == (2, TIME + 1, 2)
    q_weights, v_weights, bias = map(np.asarray, (critic.q_weights, critic.v_weights, critic.bias))
    for turn, (start, count) in enumerate([(2, 1), (5, 2)]):
        expected = q_weights @ features[start + count] / 32**0.5 + bias[0]
        np.testing.assert_allclose(q[:, turn, 1], expected, atol=1e-4)
        np.testing.assert_allclose(v[:, turn, 1], v_weights @ features[start] / 32**0.5 + bias[1], atol=1e-4)
    np.testing.assert_allclose(v[:, 3, 1], v_weights @ features[8] / 32**0.5 + bias[1], atol=1e-4)


def test_targets_bootstrap_from_the_players_next_turn():
    """Rows that terminate, that are truncated, and in which another player has a turn in between."""
    transform = OffPolicyTurnCritic(discount=0.9)
    alive = np.array([[1, 1, 1], [1, 1, 0], [0, 1, 1]], bool)
    reward = np.array([[0.5, 0.0, 0.25], [1.0, 0.0, 9.0], [9.0, 2.0, 3.0]], "float32")
    value = np.stack([np.arange(12.0).reshape(4, 3), -np.arange(12.0).reshape(4, 3)]).astype("float32")

    @jax.jit
    def targets(value, alive, reward, truncated):
        dialogues = dataclasses.replace(
            SampledDialogues.empty(3, DIALOGUE_SPEC, TIME), alive=alive, reward=reward, truncated=truncated
        )
        return transform.q_targets(value, dialogues)

    result = np.asarray(targets(value, alive, reward, np.array([False, True, False])))
    expected = {(0, 0): 0.5 + 0.9 * 3, (1, 0): 1.0, (0, 1): 0.9 * 4, (1, 1): 0.9 * 7, (2, 1): 2 + 0.9 * 10}
    expected |= {(0, 2): 0.25 + 0.9 * 8, (2, 2): 3.0}
    assert set(expected) == set(zip(*map(list, np.nonzero(alive)), strict=True))
    for (t, row), target in expected.items():
        assert result[0, t, row] == pytest.approx(target, rel=1e-6)
    non_terminal = [(t, row) for t, row in expected if (t, row) not in [(1, 0), (2, 2)]]
    assert all(result[1, t, row] != result[0, t, row] for t, row in non_terminal)


def run_updates(critic: OffPolicyTurnCritic, batches, keys):
    """States after updates on batches, and the advantages of each batch by the critic that was trained on it."""

    @jax.jit
    def step(state, dialogues, key):
        state, _, _ = critic.update(state, (), dialogues, (), jnp.int32(0), key)
        return state, critic.turn_advantages(state, (), dialogues)

    state = jax.jit(lambda: critic.init_from(MODEL, DIALOGUE_SPEC, KEY))()
    for dialogues, key in zip(batches, keys, strict=True):
        state, advantages = step(state, dialogues, key)
        yield state, np.where(dialogues.alive, advantages, 0.0)


@pytest.mark.long
def test_buffer_keeps_the_latest_dialogues():
    critic = OffPolicyTurnCritic(buffer_size=5, num_gradient_steps=1, batch_size=2)
    batches = [make_dialogues([3, 8], seed) for seed in range(4)]
    *_, (state, _) = run_updates(critic, batches, [KEY] * 4)
    replay, batches = jax.tree.map(np.asarray, (state.replay, batches))
    rows = [(batches[n // 2], n % 2) for n in (5, 6, 7, 3, 4)]  # dialogue n is in slot n % 5
    for slot, (dialogues, row) in enumerate(rows):
        np.testing.assert_array_equal(replay.transcript[slot], dialogues.transcript[row])
        np.testing.assert_array_equal(replay.reward[:, slot], dialogues.reward[:, row])
    with pytest.raises(UserError, match="buffer_size=5 is less than the 6 dialogues"):
        critic.update(state, (), make_dialogues([3] * 6), (), jnp.int32(0), KEY)


@pytest.mark.slow
def test_responses_are_rewarded_with_their_advantage():
    """Half of the dialogues start with token 8 and get reward 1 a turn later; the second response does not matter."""
    critic = OffPolicyTurnCritic(
        buffer_size=64, num_gradient_steps=25, batch_size=16, learning_rate=3e-3, discount=0.8, num_warmup_batches=1
    )
    batches = [make_dialogues([8, 3] * 8, seed=i % 4) for i in range(24)]
    (_, first), *_, (state, reward) = run_updates(critic, batches, map(quick_key, range(24)))
    assert not first.any(), "no advantages before the warm-up is over"
    assert (reward[0, ::2] > 0.2).all() and (reward[0, 1::2] < -0.2).all(), reward[0]
    np.testing.assert_allclose(reward[1], 0.0, atol=0.2)
    np.testing.assert_array_equal(reward[2], 0.0)
    q, v = (np.asarray(x[0]) for x in state.critic(batches[-1]))
    np.testing.assert_allclose(q[0], np.where(np.arange(16) % 2 == 0, 0.8, 0.0), atol=0.15)
    np.testing.assert_allclose(v[0], 0.4, atol=0.15)
    values = np.asarray(critic.values(state, (), batches[-1]))
    np.testing.assert_allclose(values[:, :, 0], np.minimum(*np.asarray(state.critic(batches[-1])[1])), rtol=1e-6)


def test_a_critic_of_pairs_is_refused_where_dialogues_are_sampled():
    with pytest.raises(UserError, match="ImplicitReward learns from pairs"):
        apply_settings(ArCHer(), ["critic=ImplicitReward"])
    assert apply_settings(SWEET(), ["critic=OffPolicyTurnCritic"]).critic == OffPolicyTurnCritic()
    with pytest.raises(ValueError, match="OffPolicyTurnCritic is no transform of rollouts any more"):
        ArCHer(rollout_transform=OffPolicyTurnCritic())  # pyright: ignore


def test_prompts_are_the_beginnings_of_all_turns_alike():
    alive = jax.device_put(np.array([[1, 1], [0, 1], [0, 0]], bool))
    dialogues = dataclasses.replace(make_dialogues([3, 8], seed=1), alive=alive)
    prompts = np.asarray(jax.jit(lambda key: random_prompts(dialogues, 600, key))(KEY))
    transcript = np.asarray(dialogues.transcript)
    turns = [(0, 2), (1, 2), (1, 5)]  # row, and length before the response
    expected = [tuple(transcript[row, :length]) for row, length in turns]
    drawn = [tuple(prompt[prompt >= 0]) for prompt in prompts]
    assert set(drawn) == set(expected)
    assert drawn.count(expected[0]) > 300, "both dialogues have the same prompt"
    assert drawn.count(expected[2]) == pytest.approx(200, abs=40)
    assert all((prompt[length:] == -1).all() for prompt in prompts for length in [(prompt >= 0).sum()])


@pytest.mark.long
def test_replayed_turns_have_new_responses_and_their_advantages():
    method = ArCHer(critic=OffPolicyTurnCritic(8, 2, 4, num_warmup_batches=0), num_replayed_turns=6, minibatch_size=3)
    critic = method.critic
    assert isinstance(critic, OffPolicyTurnCritic)

    @jax.jit
    def judge(dialogues, key):
        state = LMPolicyGradientState(
            add_value_head(MODEL, 0), (), DIALOGUE_SPEC, (), (), critic.init_from(MODEL, DIALOGUE_SPEC, KEY)
        )
        critic_state, redrawn, _ = method.judge_turns(state, dialogues, jnp.int32(0), key)
        return (
            critic_state,
            redrawn,
            critic.turn_advantages(critic_state, (), redrawn),
            redrawn.response_log_probs(MODEL, method.sampler)[0],
        )

    dialogues = make_dialogues([3, 8], seed=1)
    state, redrawn, advantages, log_probs = jax.tree.map(np.asarray, judge(dialogues, KEY))
    assert int(state.num_batches) == 1 and redrawn.responses.shape == (1, 6, 2)
    stored = np.asarray(dialogues.transcript)
    for row in range(6):
        start, response = redrawn.response_starts[0, row], redrawn.responses[0, row]
        assert any((redrawn.transcript[row, :start] == text[:start]).all() for text in stored)
        written = response[response >= 0]
        np.testing.assert_array_equal(redrawn.transcript[row, start : start + len(written)], written)
        assert start + len(written) == redrawn.response_starts[1, row]
    np.testing.assert_allclose(redrawn.reward, advantages, rtol=1e-6)
    assert np.abs(advantages).max() > 0
    np.testing.assert_allclose(redrawn.log_probs, log_probs, rtol=1e-6)
    others = jax.tree.map(np.asarray, judge(dialogues, quick_key(5)))[1]
    assert (others.responses != redrawn.responses).any()


def test_replayed_turns_need_a_buffer_and_whole_minibatches():
    with pytest.raises(ValueError, match="num_replayed_turns=48 is no multiple of minibatch_size=32"):
        ArCHer(num_replayed_turns=48)
    with pytest.raises(ValueError, match="num_replayed_turns needs critic=OffPolicyTurnCritic"):
        ArCHer(num_replayed_turns=64, critic=None)


@pytest.mark.long
def test_v_learns_on_stored_responses_weighted_by_importance():
    """The loss against loops over turns, and a policy that has changed since the dialogues were sampled."""
    critic = OffPolicyTurnCritic(8, 1, 2, discount=0.9, max_importance_weight=1.5)
    dialogues = make_dialogues([3, 8], seed=1)
    rng = np.random.default_rng(4)
    old, new = (jax.device_put(rng.normal(size=dialogues.responses.shape).astype("float32")) for _ in range(2))
    dialogues = dataclasses.replace(dialogues, log_probs=old)
    network, target = random_critic(), dataclasses.replace(random_critic(), bias=jnp.ones((2, 2)))

    @jax.jit
    def compute(dialogues, new):
        weights = critic.importance_weights(dialogues, new)
        loss, _ = critic.compute_loss(network, target, dialogues, None, weights)
        return weights, loss, network(dialogues), target(dialogues), critic.q_targets(target(dialogues)[1], dialogues)

    weights, loss, (q, v), (target_q, _), q_targets = jax.tree.map(np.asarray, compute(dialogues, new))
    alive, spoken = np.asarray(dialogues.alive), np.asarray(dialogues.response_mask)
    errors = []
    for turn, row in zip(*np.nonzero(alive), strict=True):
        mask = spoken[turn, row]
        ratio = np.exp((np.asarray(new)[turn, row][mask] - np.asarray(old)[turn, row][mask]).sum())
        assert weights[turn, row] == pytest.approx(min(ratio, 1.5), rel=1e-5)
        errors.append(
            sum((q[k, turn, row] - q_targets[k, turn, row]) ** 2 for k in range(2))
            + weights[turn, row] * sum((v[k, turn, row] - target_q[k, turn, row]) ** 2 for k in range(2))
        )
    assert weights[alive].min() < 1 < weights[alive].max() == 1.5
    assert loss == pytest.approx(np.mean(errors), rel=1e-5)


@pytest.mark.long
def test_stored_responses_are_weighted_only_where_the_policy_is_known():
    critic = OffPolicyTurnCritic(8, 1, 2, num_warmup_batches=0, max_importance_weight=10.0)
    dialogues = make_dialogues([3, 8], seed=1)
    with pytest.raises(UserError, match="max_importance_weight needs a method that knows its policy"):
        critic.update(critic.init_from(MODEL, DIALOGUE_SPEC, KEY), (), dialogues, (), jnp.int32(0), KEY)
    method = ArCHer(critic=critic, minibatch_size=2)

    @jax.jit
    def judge(dialogues):
        model, state = add_value_head(MODEL, 0), critic.init_from(MODEL, DIALOGUE_SPEC, KEY)
        return method.judge_turns(
            LMPolicyGradientState(model, (), DIALOGUE_SPEC, (), (), state), dialogues, jnp.int32(0), KEY
        )

    state, judged, _ = jax.tree.map(np.asarray, judge(dialogues))
    assert int(state.num_batches) == 1 and np.abs(judged.reward[np.asarray(dialogues.alive)]).min() > 0


def states_of_updates(method, env, num_updates=4):
    """The method's states in a run of one seed: before the first update, and after each."""
    loop = CompiledLoop(Components(method, EnvironmentReward(), FixedCurriculum()), env, 3, [0], 1000)
    carry = loop.init()
    states = [to_numpy(loop.learner_state(carry).method)]
    for _ in range(num_updates):
        carry = loop.advance(carry, 1)
        states.append(to_numpy(loop.learner_state(carry).method))
    return states


def changed(states, part):
    """Whether a part of the state is another one after each update."""
    pairs = itertools.pairwise(jax.tree.leaves(part(state)) for state in states)
    return [any(not np.array_equal(a, b) for a, b in zip(*pair, strict=True)) for pair in pairs]


@pytest.mark.slow
def test_the_actor_stays_as_it_is_while_the_critic_warms_up():
    """Even with a penalty whose gradient is not 0: an actor that moves would leave what it was pretrained on."""
    env = TextEnv(Maze(size=2, max_turns=3))
    method = ArCHer(
        model="blank",
        num_layers=1,
        hidden_size=32,
        minibatch_size=3,
        ent_coef=0.1,
        critic=OffPolicyTurnCritic(12, 2, 4, num_warmup_batches=2, max_importance_weight=2.0),
        num_replayed_turns=6,
        feed=Episodes(3, num_envs=3),
    )
    states = states_of_updates(method, env)
    assert changed(states, lambda state: state.critic.critic) == [True] * 4
    assert changed(states, lambda state: (state.model, state.opt_state)) == [False, False, True, True]


class SlowStart(OffPolicyTurnCritic):
    """A critic that learns alone for two updates."""

    num_critic_pretrain_updates: ClassVar[int] = 2


@pytest.mark.slow
def test_the_policy_waits_for_a_critic_that_learns_alone():
    env = TextEnv(Maze(size=2, max_turns=3))
    method = ArCHer(
        model="blank",
        num_layers=1,
        hidden_size=32,
        minibatch_size=3,
        critic=SlowStart(8, 2, 4, num_warmup_batches=0),
        feed=Episodes(3, num_envs=3),
    )
    states = states_of_updates(method, env)
    assert changed(states, lambda state: state.critic.critic) == [True] * 4
    assert changed(states, lambda state: state.model) == [False, False, True, True]
    state = jax.tree.map(lambda x: jnp.asarray(x[0]), states[-1])
    step = zero_transition(Components(method, EnvironmentReward(), FixedCurriculum()), env.spec, state, ())
    episode = jax.tree.map(lambda x: jnp.broadcast_to(jnp.asarray(x), (3, *jnp.shape(x))), step)
    critique = jax.jit(method.judge)(state, episode)
    assert critique.value.shape == critique.advantage.shape == (3,), "the critic judges every turn of an episode"
