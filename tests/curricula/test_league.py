"""League training: matchmaking against the published rules, snapshots, win rates, resets, and exact resumption."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from method_cases import KUHN
from small_envs import ANY_ROLLOUT, Walk

from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.laws.assertions import assert_same_bits
from thespis.core.records import EnvSpec, EpisodeStats
from thespis.core.spaces import AgentGroup, Discrete
from thespis.curricula.league import League, matchmaking_probs
from thespis.curricula.opponent_pool import OpponentPool
from thespis.data.feeds import Rollouts
from thespis.envs.games.game_tree import best_response_value, build_game_tree, expected_returns
from thespis.envs.games.opponents import LEAGUE_GROUP, RANDOM_SEAT, OpponentParams
from thespis.evaluation.exploitability import method_probabilities
from thespis.feedback.environment import EnvironmentReward
from thespis.learners.multi_agent.independent_learners import GroupStates, IndependentLearners
from thespis.learners.multi_agent.parameter_sharing import PeriodicReset
from thespis.methods.online.dqn import DQN
from thespis.methods.online.ppo import PPO
from thespis.runs import checkpoint
from thespis.runtime.keys import seed_key
from thespis.training.compiled_loop import CompiledLoop
from thespis.training.components import Components

PLAYER = PPO(hidden_sizes=(8,), minibatch_size=16, num_epochs=2, feed=Rollouts(8, num_envs=4))
GROUP = (AgentGroup(LEAGUE_GROUP, 3),)


def pfsp(rates, weighting):
    """``pfsp`` of the published pseudo-code."""
    x = np.array(rates, float)
    weights = {"variance": x * (1 - x), "linear_capped": np.minimum(0.5, 1 - x), "squared": (1 - x) ** 2}[weighting]
    return weights / weights.sum() if weights.sum() > 1e-5 else np.full(len(rates), 1 / len(rates))


class PublishedMatchmaking:
    """``get_match`` of each player of the published pseudo-code, as probabilities over all branches."""

    def __init__(self, league, count, rates):
        counts = (league.num_main_agents, league.num_main_exploiters, league.num_league_exploiters)
        self.kinds = [kind for kind, n in zip(("main", "exploiter", "league"), counts, strict=True) for _ in range(n)]
        members = range(league.num_main_agents, league.num_main_agents + count * len(self.kinds))
        self.historical = {member: (member - league.num_main_agents) % len(self.kinds) for member in members}
        self.rates, self.mains = rates, league.num_main_agents
        self.probs = np.zeros(league.num_main_agents + league.max_generations * len(self.kinds))

    def match(self, i):
        snapshots, main_prob = list(self.historical), 1 / self.mains
        if self.kinds[i] == "league":
            self.add_pfsp(snapshots, "linear_capped", 1.0)
        elif self.kinds[i] == "main":
            self.add_pfsp(snapshots, "squared", 0.5)
        for j in range(self.mains):
            if self.kinds[i] == "main":
                self.verification(j, 0.15 * main_prob)
                self.current_if(j, 0.3, 0.35 * main_prob)
            elif self.kinds[i] == "exploiter":
                self.current_if(j, 0.1, main_prob)
        return self.probs

    def add_pfsp(self, members, weighting, prob_total):
        for member, prob in zip(members, pfsp(self.rates[members], weighting), strict=True):
            self.probs[member] += prob_total * prob

    def snapshots_of(self, is_wanted):
        return [member for member, parent in self.historical.items() if is_wanted(parent)]

    def current_if(self, j, threshold, prob):
        if self.rates[j] > threshold:
            self.probs[j] += prob
        else:
            self.add_pfsp(self.snapshots_of(lambda parent: parent == j), "variance", prob)

    def verification(self, j, prob):
        exploiters = self.snapshots_of(lambda parent: self.kinds[parent] == "exploiter")
        past_selves = self.snapshots_of(lambda parent: parent == j)
        if exploiters and min(self.rates[exploiters]) < 0.3:
            self.add_pfsp(exploiters, "squared", prob)
        elif min(self.rates[past_selves]) < 0.7:
            self.add_pfsp(past_selves, "squared", prob)
        else:
            self.current_if(j, 0.3, prob)


@pytest.mark.parametrize(
    "league",
    [
        League(max_generations=3),
        League(2, 1, 2, max_generations=2),
        League(1, 0, 0, max_generations=4),
        League(2, 3, 0, max_generations=2),
    ],
    ids=lambda league: f"{league.num_main_agents}-{league.num_main_exploiters}-{league.num_league_exploiters}",
)
def test_matchmaking_matches_the_published_rules(league):
    rng, roster = np.random.default_rng(0), league.roster
    learners = range(len(roster.roles))
    probs = jax.jit(
        lambda present_mask, win_rates: jnp.stack(
            [matchmaking_probs(roster, i, present_mask, win_rates, 0.5, 0.15) for i in learners]
        )
    )
    for trial in range(60):
        count = int(rng.integers(1, league.max_generations + 1))
        concentration = (0.1, 0.3, 1.0, 5.0)[trial % 4]  # from almost lost or won to almost even
        rates = np.clip(rng.beta(concentration, concentration, roster.num_members), 0.05, 0.95).astype("float32")
        if trial in (5, 6):
            rates[:] = trial - 5  # where all weights are zero, probabilities are uniform
        present = np.arange(roster.num_members) < league.num_main_agents + count * len(learners)
        result = probs(jnp.asarray(present), jnp.asarray(rates))
        expected = [PublishedMatchmaking(league, count, rates).match(i) for i in learners]
        np.testing.assert_allclose(result, expected, atol=2e-3)
        np.testing.assert_allclose(np.sum(result, axis=1), 1, atol=1e-5)


# -- a league of policies that are one number each: 100 * rollout + learner ---------------------------------------


def spec(count=3):
    params = OpponentParams(
        {"who": jnp.zeros(count)}, jnp.ones(count, bool), jnp.full(count, RANDOM_SEAT), jnp.zeros(count, "int32")
    )
    return EnvSpec("tables", Discrete(2), Discrete(2), True, 9, params, groups=(AgentGroup(LEAGUE_GROUP, count),))


def update_league(league, state, rollout, returns=0.0, member=None):
    """The league state after a rollout of four steps, in which games end with ``returns`` against ``member``."""
    shape = (2, 2, len(league.roster.roles))
    params = jax.tree.map(lambda x: jnp.broadcast_to(x, (2, 2, *x.shape)), spec(shape[2]).params)
    member = jnp.broadcast_to(jnp.asarray(0 if member is None else member), shape).astype("int32")
    params = dataclasses.replace(params, pool_index=member)
    agent_returns = {LEAGUE_GROUP: jnp.broadcast_to(jnp.asarray(returns, "float32"), shape)}
    policy = GroupStates({LEAGUE_GROUP: {"who": 100.0 * rollout + jnp.arange(shape[2])}}, GROUP)
    terminated = jnp.ones((2, 2), bool)
    stats = EpisodeStats(terminated, jnp.zeros((2, 2)), terminated.astype("int32"), params, policy, agent_returns)
    return eqx.filter_jit(league.update)(state, ANY_ROLLOUT, None, stats, seed_key(0))


def test_snapshots_join_at_intervals_and_replace_the_oldest():
    league = League(max_generations=2, snapshot_interval=8)  # two rollouts of four steps
    state = league.init(spec(), seed_key(0))
    assert bool(league.draw(state, seed_key(1), 50).params.random_policy.all()), (
        "initially all opponents play at random"
    )
    members = []
    for rollout in range(1, 7):
        state, report = update_league(league, state, rollout)
        members.append(np.asarray(state.policies["who"]).tolist())
    assert members[0] == [100, 0, 0, 0, 0, 0, 0]
    assert members[1] == [200, 0, 0, 0, 200, 201, 202]
    assert members[2] == [300, 0, 0, 0, 200, 201, 202]
    assert members[3] == [400, 400, 401, 402, 200, 201, 202]
    assert members[5] == [600, 400, 401, 402, 600, 601, 602]
    assert int(state.num_generations) == 4 and float(report.metrics["generations"]) == 3


def test_drawn_opponents_have_their_policies_and_probabilities():
    league = League(max_generations=3, snapshot_interval=4)
    state = league.init(spec(), seed_key(0))
    state, _ = update_league(league, state, 1)
    params = league.draw(state, seed_key(3), 4_000).params
    np.testing.assert_array_equal(
        params.policy["who"], np.asarray(state.policies["who"])[np.asarray(params.pool_index)]
    )
    is_initial = np.isin(np.asarray(params.pool_index), (1, 2, 3))
    np.testing.assert_array_equal(params.random_policy, is_initial)
    frequencies = np.stack([np.bincount(indices, minlength=10) / 4_000 for indices in np.asarray(params.pool_index).T])
    np.testing.assert_allclose(frequencies, state.opponent_probs, atol=4 * 0.5 / np.sqrt(4_000))
    assert set(np.asarray(params.pool_index)[:, 1].tolist()) == {0}, "the main exploiter meets the current main agent"
    assert 0 not in set(np.asarray(params.pool_index)[:, 2].tolist()), "the league exploiter meets snapshots only"


def test_an_exploiter_that_never_wins_meets_past_main_agents():
    league = League(max_generations=3, snapshot_interval=4, ema_rate=0.5)
    state = league.init(spec(), seed_key(0))
    state, _ = update_league(league, state, 1)  # a generation joins: all win rates are 0.5
    state, _ = update_league(dataclasses.replace(league, snapshot_interval=400), state, 2, returns=-1.0, member=0)
    assert float(state.win_rates[1, 0]) < 0.1
    opponents = set(np.asarray(league.draw(state, seed_key(3), 300).params.pool_index)[:, 1].tolist())
    assert opponents == {1, 4}, "snapshots of the main agent; member 1 is its initial policy"


def test_win_rates_match_hand_values():
    """Four games per rollout with rate 1/2: the previous win rate keeps a weight of 1/16."""
    league = League(max_generations=2, snapshot_interval=400, ema_rate=0.5)
    state, report = update_league(league, league.init(spec(), seed_key(0)), 1, [1.0, -2.0, 0.0], [0, 0, 2])
    expected = np.full((3, 7), 0.5)
    expected[0, 0], expected[1, 0], expected[2, 2] = 0.5 / 16 + 15 / 16, 0.5 / 16, 0.5
    np.testing.assert_allclose(state.win_rates, expected)
    assert float(report.metrics["exploited"]) == pytest.approx(0.5 / 16)


def test_win_rates_of_snapshots_and_of_reset_learners():
    league = League(max_generations=4, snapshot_interval=4, exploiter_reset_generations=2, ema_rate=0.5)
    initial = league.init(spec(), seed_key(0))
    win_rates = jnp.asarray(np.random.default_rng(0).uniform(size=(3, 13)), "float32")
    initial = dataclasses.replace(initial, win_rates=win_rates)
    first, _ = update_league(league, initial, 1, member=12)  # games against an empty slot: no other win rate changes
    win_rates = np.asarray(win_rates)
    # the main agent against its new snapshot: as against its current self
    assert first.win_rates[0, 4] == win_rates[0, 0]
    # against the exploiter's snapshot: the exploiter's wins are its losses
    assert first.win_rates[0, 5] == np.float32(1) - win_rates[1, 0]
    assert first.win_rates[2, 4] == win_rates[2, 0] and first.win_rates[2, 5] == 0.5
    np.testing.assert_array_equal(first.win_rates[1], np.full(13, 0.5))  # reset
    np.testing.assert_array_equal(first.win_rates[2, :4], win_rates[2, :4])  # not reset yet
    second, _ = update_league(league, first, 2, member=12)
    np.testing.assert_array_equal(second.win_rates[2], np.full(13, 0.5))


def test_invalid_leagues_are_rejected():
    with pytest.raises(UserError, match="needs num_main_agents"):
        _ = League(num_main_agents=0).roster
    for method, reason in ((IndependentLearners(PPO()), "methods for one agent"), (DQN(), "learns from the rollout")):
        with pytest.raises(UserError, match=reason):
            League().make_learner(method)
    with pytest.raises(UserError, match="no game with opponents"):
        League().make_env(Walk(), League().make_learner(PPO()))
    with pytest.raises(UserError, match="learners #0 to #2"):
        League().select_player(League().make_learner(PPO()), None, 3)
    with pytest.raises(UserError, match="one learner"):
        OpponentPool().select_player(PPO(), None, 1)


# -- training loops -------------------------------------------------------------------------------------------


def make_loop(league, seeds=(0, 1)):
    method = league.make_learner(PLAYER)
    env = league.make_env(KUHN, method)
    return CompiledLoop(Components(method, EnvironmentReward(), league), env, 4, list(seeds), 1000)


@pytest.mark.slow
def test_league_resumes_bit_for_bit(tmp_path):
    """A run that is saved, loaded and continued ends with the same bits as an uninterrupted run."""
    loop = make_loop(League(max_generations=2, snapshot_interval=60, exploiter_reset_generations=2))
    uninterrupted = loop.advance(loop.init(), 9)
    carry = loop.advance(loop.init(), 3)
    checkpoint.save(tmp_path / "checkpoint", loop.snapshot(carry), {})
    loaded, _ = checkpoint.load(tmp_path / "checkpoint", loop.checkpoint_template())
    carry, missing = loop.restore(loaded)
    assert not missing
    carry = loop.advance(carry, 6)
    assert int(np.asarray(carry.learner.curriculum.num_generations)[0]) > 3, "members came and went"
    assert_same_bits(loop.snapshot(uninterrupted), loop.snapshot(carry), "resumed")


@pytest.mark.slow
def test_snapshots_hold_the_acting_policy_and_exploiters_reset():
    """The policy of the rollout is stored before its exploiter is reset to its initial state; 32 steps per rollout."""
    loop = make_loop(League(max_generations=3, snapshot_interval=40, exploiter_reset_generations=2), seeds=(0,))
    first = jax.tree.map(np.asarray, loop.init().learner.method.by_group[LEAGUE_GROUP].current)
    carry = loop.init()
    for rollout in range(1, 5):
        acting = jax.tree.map(
            np.asarray,
            loop.components.method.policy(first_seed(carry.learner.method), Mode.EXPLORE).by_group[LEAGUE_GROUP],
        )
        carry = loop.advance(carry, 1)
        current = jax.tree.map(np.asarray, carry.learner.method.by_group[LEAGUE_GROUP].current)
        is_reset = [all(np.array_equal(x[0, i], y[0, i]) for x, y in leaf_pairs(current, first)) for i in range(3)]
        assert is_reset == [False, rollout % 2 == 0, rollout % 4 == 0]
        if rollout % 2 == 0:
            member = 1 + 3 * (rollout // 2)
            snapshots = jax.tree.map(
                lambda x, at=member: np.asarray(x)[0, at : at + 3], carry.learner.curriculum.policies
            )
            assert all(np.array_equal(x, y) for x, y in leaf_pairs(snapshots, acting))


@pytest.mark.slow
def test_league_of_larger_networks_initializes():
    """In a separate process, because for some sizes the initialization once hung."""
    code = (
        "from thespis.curricula.league import League\n"
        "from thespis.envs import registry\n"
        "from thespis.feedback.environment import EnvironmentReward\n"
        "from thespis.training.compiled_loop import CompiledLoop\n"
        "from thespis.training.components import Components\n"
        "from thespis.methods.online.ppo import PPO\n"
        "league = League()\n"
        "method = league.make_learner(PPO())\n"
        "env = league.make_env(registry.make_compiled('pgx:connect_four'), method)\n"
        "CompiledLoop(Components(method, EnvironmentReward(), league), env, 64, [0], 10**6).init()\n"
    )
    subprocess.run([sys.executable, "-c", code], timeout=300, check=True)


@pytest.mark.slow
def test_exploiter_of_a_fixed_main_agent_finds_the_best_response():
    """The main agent is reset after every update, so the value of a best response to it is known exactly."""
    player = PPO(
        hidden_sizes=(16,),
        discount=1.0,
        learning_rate=3e-3,
        num_epochs=4,
        minibatch_size=256,
        feed=Rollouts(32, num_envs=32),
    )
    league, method = (
        League(1, 1, 0, max_generations=2, snapshot_interval=10**6),
        IndependentLearners(player, PeriodicReset(1, (1, 0))),
    )
    env = league.make_env(KUHN, method)
    loop = CompiledLoop(Components(method, EnvironmentReward(), league), env, 32, [0], 10**6)
    first = jax.tree.map(np.asarray, loop.init().learner.method.by_group[LEAGUE_GROUP].current)
    carry = loop.advance(loop.init(), 60)
    states = carry.learner.method
    assert all(np.array_equal(x[0, 0], y[0, 0]) for x, y in leaf_pairs(states.by_group[LEAGUE_GROUP].current, first))
    tree = build_game_tree(KUHN.game)

    def table(member, mode):
        player_method, player_states = league.select_player(loop.components.method, states, member)
        probs = np.where(
            tree.action_mask,
            np.asarray(method_probabilities(player_method, first_seed(player_states), tree, mode), "float64"),
            0.0,
        )
        return probs / probs.sum(axis=1, keepdims=True)

    main_policy, exploiter = table(0, Mode.EXPLORE), table(1, Mode.EXPLOIT)
    values = [
        float(
            expected_returns(
                tree, jnp.asarray(np.where((tree.info_state_player == s)[:, None], exploiter, main_policy))
            )[s]
        )
        for s in range(2)
    ]
    best_response = np.mean([float(best_response_value(tree, jnp.asarray(main_policy), player)) for player in range(2)])
    assert best_response - 0.1 < np.mean(values) < best_response + 1e-4
    assert np.mean(values) > 0.2


def first_seed(tree):
    return jax.tree.map(lambda x: x[0], tree)


def leaf_pairs(a, b):
    return zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
