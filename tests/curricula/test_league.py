"""A league: who meets whom as the published rules say, who joins and who begins anew, and that it survives a stop."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import KUHN
from worlds import Walk

from thespis.core.agents import Group
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.feeds import Rollouts
from thespis.core.game_trees import game_tree
from thespis.core.game_walks import best_response, outcome
from thespis.core.keys import key_of
from thespis.core.laws import same_bits
from thespis.core.records import EnvSpec, Outcomes
from thespis.core.spaces import Discrete
from thespis.curricula.league import League
from thespis.curricula.matchmaking import chances
from thespis.curricula.opponents import PastSelves
from thespis.envs.games.tables import LEARNERS
from thespis.envs.games.versus import ANY, Opponents
from thespis.evaluation.exploitability import ask
from thespis.feedback.environment import EnvironmentReward
from thespis.learners.crowd import EachAlone, Members
from thespis.learners.sharing import Renewed
from thespis.loops.compiled import CompiledLoop
from thespis.loops.parts import Parts
from thespis.methods.online.dqn import DQN
from thespis.methods.online.ppo import PPO
from thespis.runs import checkpoint

PLAYER = PPO(hidden=(8,), minibatch=16, epochs=2, feed=Rollouts(8, envs=4))
GROUP = (Group(LEARNERS, 3),)


def pfsp(rates, weighting):
    """``pfsp`` of the published pseudo-code."""
    x = np.array(rates, float)
    found = {"variance": x * (1 - x), "linear_capped": np.minimum(0.5, 1 - x), "squared": (1 - x) ** 2}[weighting]
    return found / found.sum() if found.sum() > 1e-5 else np.full(len(rates), 1 / len(rates))


class Published:
    """``get_match`` of each player of the published pseudo-code, every branch taken with its chance."""

    def __init__(self, league, count, rates):
        counts = (league.mains, league.main_exploiters, league.league_exploiters)
        self.kinds = [kind for kind, n in zip(("main", "exploiter", "league"), counts, strict=True) for _ in range(n)]
        members = range(league.mains, league.mains + count * len(self.kinds))
        self.historical = {place: (place - league.mains) % len(self.kinds) for place in members}
        self.rates, self.mains = rates, league.mains
        self.found = np.zeros(league.mains + league.copies * len(self.kinds))

    def match(self, i):
        everybody, each = list(self.historical), 1 / self.mains
        if self.kinds[i] == "league":
            self.one_of(everybody, "linear_capped", 1.0)
        elif self.kinds[i] == "main":
            self.one_of(everybody, "squared", 0.5)
        for j in range(self.mains):
            if self.kinds[i] == "main":
                self.verification(j, 0.15 * each)
                self.now_if(j, 0.3, 0.35 * each)
            elif self.kinds[i] == "exploiter":
                self.now_if(j, 0.1, each)
        return self.found

    def one_of(self, places, weighting, chance):
        for place, share in zip(places, pfsp(self.rates[places], weighting), strict=True):
            self.found[place] += chance * share

    def copies_of(self, wanted):
        return [place for place, parent in self.historical.items() if wanted(parent)]

    def now_if(self, j, least, chance):
        if self.rates[j] > least:
            self.found[j] += chance
        else:
            self.one_of(self.copies_of(lambda parent: parent == j), "variance", chance)

    def verification(self, j, chance):
        exploiters = self.copies_of(lambda parent: self.kinds[parent] == "exploiter")
        past = self.copies_of(lambda parent: parent == j)
        if exploiters and min(self.rates[exploiters]) < 0.3:
            self.one_of(exploiters, "squared", chance)
        elif min(self.rates[past]) < 0.7:
            self.one_of(past, "squared", chance)
        else:
            self.now_if(j, 0.3, chance)


@pytest.mark.parametrize(
    "league",
    [League(copies=3), League(2, 1, 2, copies=2), League(1, 0, 0, copies=4), League(2, 3, 0, copies=2)],
    ids=lambda league: f"{league.mains}-{league.main_exploiters}-{league.league_exploiters}",
)
def test_chances_are_those_of_the_published_rules(league):
    rng, roll = np.random.default_rng(0), league.roll
    learners = range(len(roll.roles))
    of = jax.jit(lambda there, points: jnp.stack([chances(roll, i, there, points, 0.5, 0.15) for i in learners]))
    for trial in range(60):
        count = int(rng.integers(1, league.copies + 1))
        spread = (0.1, 0.3, 1.0, 5.0)[trial % 4]  # from all but lost or won to all but even
        rates = np.clip(rng.beta(spread, spread, roll.size), 0.05, 0.95).astype("float32")
        if trial in (5, 6):
            rates[:] = trial - 5  # where nothing is left to weigh, all are alike
        present = np.arange(roll.size) < league.mains + count * len(learners)
        found = of(jnp.asarray(present), jnp.asarray(rates))
        wanted = [Published(league, count, rates).match(i) for i in learners]
        np.testing.assert_allclose(found, wanted, atol=2e-3)
        np.testing.assert_allclose(np.sum(found, axis=1), 1, atol=1e-5)


# -- a league of policies that are one number each: the hundreds are the rollout, the ones the learner -------------


def spec(count=3):
    params = Opponents(
        {"who": jnp.zeros(count)}, jnp.ones(count, bool), jnp.full(count, ANY), jnp.zeros(count, "int32")
    )
    return EnvSpec("tables", Discrete(2), Discrete(2), True, 9, params, groups=(Group(LEARNERS, count),))


def played(league, state, rollout, returns=0.0, member=None):
    """The standings after a rollout of four steps, in which games end with ``returns`` against ``member``."""
    shape = (2, 2, len(league.roll.roles))
    params = jax.tree.map(lambda x: jnp.broadcast_to(x, (2, 2, *x.shape)), spec(shape[2]).params)
    member = jnp.broadcast_to(jnp.asarray(0 if member is None else member), shape).astype("int32")
    params = dataclasses.replace(params, member=member)
    each = {LEARNERS: jnp.broadcast_to(jnp.asarray(returns, "float32"), shape)}
    policy = Members({LEARNERS: {"who": 100.0 * rollout + jnp.arange(shape[2])}}, GROUP)
    ended = jnp.ones((2, 2), bool)
    outcomes = Outcomes(ended, jnp.zeros((2, 2)), ended.astype("int32"), params, policy, each)
    return eqx.filter_jit(league.update)(state, outcomes, key_of(0))


def test_copies_of_all_join_in_turn_and_the_oldest_leave():
    league = League(copies=2, every=8)  # two rollouts of four steps
    state = league.init(spec(), key_of(0))
    assert bool(league.draw(state, key_of(1), 50).uniform.all()), "before anything is known all play at random"
    held = []
    for rollout in range(1, 7):
        state, report = played(league, state, rollout)
        held.append(np.asarray(state.policies["who"]).tolist())
    assert held[0] == [100, 0, 0, 0, 0, 0, 0]
    assert held[1] == [200, 0, 0, 0, 200, 201, 202]
    assert held[2] == [300, 0, 0, 0, 200, 201, 202]
    assert held[3] == [400, 400, 401, 402, 200, 201, 202]
    assert held[5] == [600, 400, 401, 402, 600, 601, 602]
    assert int(state.generations) == 4 and float(report.metrics["generations"]) == 3


def test_drawn_opponents_are_who_they_are_said_to_be():
    league = League(copies=3, every=4)
    state = league.init(spec(), key_of(0))
    state, _ = played(league, state, 1)
    drawn = league.draw(state, key_of(3), 4_000)
    np.testing.assert_array_equal(drawn.policy["who"], np.asarray(state.policies["who"])[np.asarray(drawn.member)])
    beginners = np.isin(np.asarray(drawn.member), (1, 2, 3))
    np.testing.assert_array_equal(drawn.uniform, beginners)
    share = np.stack([np.bincount(who, minlength=10) / 4_000 for who in np.asarray(drawn.member).T])
    np.testing.assert_allclose(share, state.chances, atol=4 * 0.5 / np.sqrt(4_000))
    assert set(np.asarray(drawn.member)[:, 1].tolist()) == {0}, "the main exploiter meets the main agent of now"
    assert 0 not in set(np.asarray(drawn.member)[:, 2].tolist()), "the league exploiter meets copies alone"


def test_an_exploiter_that_never_wins_meets_past_main_agents():
    league = League(copies=3, every=4, rate=0.5)
    state = league.init(spec(), key_of(0))
    state, _ = played(league, state, 1)  # a generation joins: everybody is even
    state, _ = played(dataclasses.replace(league, every=400), state, 2, returns=-1.0, member=0)
    assert float(state.points[1, 0]) < 0.1
    met = set(np.asarray(league.draw(state, key_of(3), 300).member)[:, 1].tolist())
    assert met == {1, 4}, "copies of the main agent, of which place 1 is the beginner"


def test_points_by_hand():
    """Four games a rollout with weight 1/2 each: what was known counts for 1/16."""
    league = League(copies=2, every=400, rate=0.5)
    state, report = played(league, league.init(spec(), key_of(0)), 1, [1.0, -2.0, 0.0], [0, 0, 2])
    points = np.full((3, 7), 0.5)
    points[0, 0], points[1, 0], points[2, 2] = 0.5 / 16 + 15 / 16, 0.5 / 16, 0.5
    np.testing.assert_allclose(state.points, points)
    assert float(report.metrics["exploited"]) == pytest.approx(0.5 / 16)


def test_what_is_known_of_a_copy_and_of_who_begins_anew():
    league = League(copies=4, every=4, patience=2, rate=0.5)
    before = league.init(spec(), key_of(0))
    points = jnp.asarray(np.random.default_rng(0).uniform(size=(3, 13)), "float32")
    before = dataclasses.replace(before, points=points)
    first, _ = played(league, before, 1, member=12)  # games against nobody: nothing else is learnt
    points = np.asarray(points)
    assert first.points[0, 4] == points[0, 0]  # main agent: itself now
    assert first.points[0, 5] == np.float32(1) - points[1, 0]  # the exploiter's wins are its losses
    assert first.points[2, 4] == points[2, 0] and first.points[2, 5] == 0.5
    np.testing.assert_array_equal(first.points[1], np.full(13, 0.5))  # begins anew
    np.testing.assert_array_equal(first.points[2, :4], points[2, :4])  # not yet
    second, _ = played(league, first, 2, member=12)
    np.testing.assert_array_equal(second.points[2], np.full(13, 0.5))


def test_leagues_that_cannot_be():
    with pytest.raises(UserError, match="needs a main agent"):
        _ = League(mains=0).roll
    for method in (EachAlone(PPO()), DQN()):
        with pytest.raises(UserError, match="methods for one agent that learn from rollouts"):
            League().learner(method)
    with pytest.raises(UserError, match="no game with opponents"):
        League().world(Walk(), League().learner(PPO()))
    with pytest.raises(UserError, match="learners #0 to #2"):
        League().player(League().learner(PPO()), None, 3)
    with pytest.raises(UserError, match="one learner"):
        PastSelves().player(PPO(), None, 1)


# -- the whole ------------------------------------------------------------------------------------------------


def looping(league, seeds=(0, 1)):
    method = league.learner(PLAYER)
    world = league.world(KUHN, method)
    return CompiledLoop(Parts(method, EnvironmentReward(), league), world, 4, list(seeds), 1000)


@pytest.mark.slow
def test_a_league_is_resumed_as_it_was(tmp_path):
    """Stopped and continued from a file, it ends with the bits of one that went straight through."""
    loop = looping(League(copies=2, every=60, patience=2))
    straight = loop.advance(loop.init(), 9)
    carry = loop.advance(loop.init(), 3)
    checkpoint.save(tmp_path / "checkpoint", loop.snapshot(carry), {})
    found, _ = checkpoint.load(tmp_path / "checkpoint", loop.like())
    carry, lost = loop.restore(found)
    assert not lost
    carry = loop.advance(carry, 6)
    assert int(np.asarray(carry.learner.curriculum.generations)[0]) > 3, "members came and went"
    same_bits(loop.snapshot(straight), loop.snapshot(carry), "resumed as it was")


@pytest.mark.slow
def test_copies_are_of_who_played_and_exploiters_begin_anew_in_the_same_rollout():
    """The rollout's own policy joins, after which its exploiter is what it was at first; 32 steps a rollout."""
    loop = looping(League(copies=3, every=40, patience=2), seeds=(0,))
    first = jax.tree.map(np.asarray, loop.init().learner.method.of[LEARNERS].now)
    carry = loop.init()
    for rollout in range(1, 5):
        before = jax.tree.map(
            np.asarray, loop.parts.method.policy(one(carry.learner.method), Mode.EXPLORE).of[LEARNERS]
        )
        carry = loop.advance(carry, 1)
        now = jax.tree.map(np.asarray, carry.learner.method.of[LEARNERS].now)
        returned = [all(np.array_equal(x[0, i], y[0, i]) for x, y in leaves(now, first)) for i in range(3)]
        assert returned == [False, rollout % 2 == 0, rollout % 4 == 0]
        if rollout % 2 == 0:
            place = 1 + 3 * (rollout // 2)
            held = jax.tree.map(lambda x, at=place: np.asarray(x)[0, at : at + 3], carry.learner.curriculum.policies)
            assert all(np.array_equal(x, y) for x, y in leaves(held, before))


@pytest.mark.slow
def test_a_league_of_larger_nets_begins():
    """In a process of its own, which for some sizes stood still before the first step."""
    code = (
        "from thespis.curricula.league import League\n"
        "from thespis.envs import registry\n"
        "from thespis.feedback.environment import EnvironmentReward\n"
        "from thespis.loops.compiled import CompiledLoop\n"
        "from thespis.loops.parts import Parts\n"
        "from thespis.methods.online.ppo import PPO\n"
        "league = League()\n"
        "method = league.learner(PPO())\n"
        "world = league.world(registry.compiled('pgx:connect_four'), method)\n"
        "CompiledLoop(Parts(method, EnvironmentReward(), league), world, 64, [0], 10**6).init()\n"
    )
    subprocess.run([sys.executable, "-c", code], timeout=300, check=True)


@pytest.mark.slow
def test_an_exploiter_of_a_main_agent_that_holds_still_finds_the_best_reply():
    """The main agent returns to its first state after every update. What a best reply wins of it is known exactly."""
    player = PPO(
        hidden=(16,), discount=1.0, learning_rate=3e-3, epochs=4, minibatch=256, feed=Rollouts(32, envs=32)
    )  # fmt: skip
    league, method = League(1, 1, 0, copies=2, every=10**6), EachAlone(player, Renewed(1, (1, 0)))
    world = league.world(KUHN, method)
    loop = CompiledLoop(Parts(method, EnvironmentReward(), league), world, 32, [0], 10**6)
    first = jax.tree.map(np.asarray, loop.init().learner.method.of[LEARNERS].now)
    carry = loop.advance(loop.init(), 60)
    states = carry.learner.method
    assert all(np.array_equal(x[0, 0], y[0, 0]) for x, y in leaves(states.of[LEARNERS].now, first))
    tree = game_tree(KUHN.game)

    def table(member, mode):
        own, found = league.player(loop.parts.method, states, member)
        told = np.where(tree.legal, np.asarray(ask(own, one(found), tree, mode), "float64"), 0.0)
        return told / told.sum(axis=1, keepdims=True)

    still, exploiter = table(0, Mode.EXPLORE), table(1, Mode.EXPLOIT)
    won = [
        float(outcome(tree, jnp.asarray(np.where((tree.owner == s)[:, None], exploiter, still)))[s]) for s in range(2)
    ]
    best = np.mean([float(best_response(tree, jnp.asarray(still), seat)) for seat in range(2)])
    assert best - 0.1 < np.mean(won) < best + 1e-4
    assert np.mean(won) > 0.2


def one(tree):
    return jax.tree.map(lambda x: x[0], tree)


def leaves(a, b):
    return zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
