"""Rock-paper-scissors: scripted opponents against rules written out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.laws.components import check_curriculum, check_environment
from thespis.curricula.domain_randomization import DomainRandomization
from thespis.papers.clam.envs import NUM_MEMBERS, RockPaperScissors, RockPaperScissorsParams


def rounds(env, member, choices, seed=0):
    """Observations before each round, rewards and truncations of the learner's ``choices``."""

    def step(state, inputs):
        state, timestep = env.step(state, *inputs)
        return state, (timestep.observation, timestep.reward, timestep.truncated)

    init_state, first = env.reset(RockPaperScissorsParams(jnp.int32(member)), jax.random.key(seed))
    keys = jax.random.split(jax.random.key(seed + 1), len(choices))
    _, (obs, rewards, truncated) = jax.lax.scan(step, init_state, (jnp.asarray(choices, "int32"), keys))
    return np.vstack([first.observation, obs]), np.asarray(rewards), np.asarray(truncated)


def test_contract():
    check_environment(RockPaperScissors())
    check_curriculum(DomainRandomization((("member", 0, 8),)), RockPaperScissors().spec)


@pytest.mark.parametrize("member", range(NUM_MEMBERS))
def test_opponents_play_their_scripts(member):
    choices = [2, 0, 0, 1, 2, 1]
    obs, rewards, truncated = rounds(RockPaperScissors(num_rounds=6, slip_prob=0.0), member, choices)
    kind, shift = divmod(member, 3)
    opponent_moves, wins = [], {(1, 0), (2, 1), (0, 2)}
    for round_index, own in enumerate(choices):
        base = 0 if round_index == 0 or kind == 0 else choices[round_index - 1] if kind == 1 else opponent_moves[-1]
        opponent_moves.append((base + shift) % 3)
        assert rewards[round_index] == ((own, opponent_moves[-1]) in wins) - ((opponent_moves[-1], own) in wins)
    assert obs.tolist() == [[3, 3], *map(list, zip(choices, opponent_moves, strict=True))]
    assert truncated.tolist() == [False] * 5 + [True]


def test_slip_probability_and_sampling_of_opponents():
    obs, rewards, _ = rounds(RockPaperScissors(num_rounds=5000, slip_prob=0.3), 1, [2] * 5000)
    assert np.mean(obs[1:, 1] == 1) == pytest.approx(0.8, abs=0.02)
    assert np.mean(rewards) == pytest.approx(0.7, abs=0.03)
    keys = jax.random.split(jax.random.key(0), 200)
    members = jax.vmap(lambda key: RockPaperScissors().reset(RockPaperScissors().spec.params, key)[0].member)(keys)
    assert set(np.asarray(members).tolist()) == set(range(NUM_MEMBERS))


def test_visible_opponents_are_the_same_opponents():
    choices = [2, 0, 0, 1, 2, 1]
    hidden = rounds(RockPaperScissors(num_rounds=6), 7, choices)
    visible = rounds(RockPaperScissors(num_rounds=6, member_visible=True), 7, choices)
    np.testing.assert_array_equal(visible[0][:, :2], hidden[0])
    np.testing.assert_array_equal(visible[0][:, 2], 7)
    np.testing.assert_array_equal(visible[1], hidden[1])


def test_known_opponents_give_the_optimal_return():
    game = RockPaperScissors(num_rounds=4000)
    _, rewards, _ = rounds(game, 2, [0] * 4000)  # it plays 2, which 0 beats
    assert rewards.sum() / game.optimal_return() == pytest.approx(1, abs=0.05)
