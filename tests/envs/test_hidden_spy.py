"""Hidden-role game: votes, missions, beliefs and observations against enumeration in NumPy, and what players see."""

from __future__ import annotations

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.errors import UserError
from thespis.core.laws.components import check_environment
from thespis.envs.compiled.hidden_spy import GROUP, HiddenSpy
from thespis.runtime.keys import seed_key

ENV = HiddenSpy(num_players=4, num_rounds=5, sabotage_prob=0.6, accident_prob=0.2, clue_prob=0.5)


def start(env: HiddenSpy, seed: int = 0):
    return env.reset((), seed_key(seed))


def absentee_probs(votes: list[int], spy: int, scripted: bool) -> np.ndarray:
    """In NumPy: how likely each player is to stay at home, over the votes of a scripted spy and all ties."""
    count = len(votes)
    spy_votes = [v for v in range(count) if v != spy] if scripted else [votes[spy]]
    probs = np.zeros(count)
    for spy_vote in spy_votes:
        totals = np.bincount([spy_vote if i == spy else v for i, v in enumerate(votes)], minlength=count)
        most = np.flatnonzero(totals == totals.max())
        probs[most] += 1 / (len(spy_votes) * len(most))
    return probs


def success_prob(env: HiddenSpy, probs: np.ndarray, spy: int) -> float:
    return (1 - env.accident_prob) * (probs[spy] + (1 - probs[spy]) * (1 - env.sabotage_prob))


@pytest.mark.long
@pytest.mark.parametrize(("spy", "votes"), [(0, [1, 0, 0, 1]), (2, [1, 0, 3, 0]), (3, [3, 3, 3, 0]), (1, [2, 3, 0, 1])])
def test_votes_and_missions_match_enumeration(spy, votes):

    @jax.jit
    def play(spy, votes):
        state = eqx.tree_at(lambda s: s.spy, start(ENV)[0], spy)
        return jax.vmap(lambda key: ENV.step(state, {GROUP: votes}, key))(jax.random.split(seed_key(1), 8_000))

    after, step = play(jnp.int32(spy), jnp.array(votes, "int32"))
    expected = absentee_probs(votes, spy, scripted=True)
    np.testing.assert_allclose(np.asarray(after.num_absences).mean(axis=0), expected, atol=0.025)
    assert abs(float(step.reward.mean()) - success_prob(ENV, expected, spy)) < 0.025
    others = np.arange(4) != spy
    assert (np.asarray(after.votes)[:, others] == np.array(votes)[others]).all()
    spy_votes = np.bincount(np.asarray(after.votes)[:, spy], minlength=4) / 8_000
    np.testing.assert_allclose(spy_votes, np.where(others, 1 / 3, 0), atol=0.025)


@pytest.mark.long
def test_returns_of_random_play_and_of_players_who_know_the_spy():
    def play(key, votes_for_spy: bool):
        reset_key, *keys = jax.random.split(key, ENV.num_rounds + 1)
        state, step = ENV.reset((), reset_key)
        total = 0.0
        for key in keys:
            choice = jax.random.categorical(key, jnp.where(step.action_mask[GROUP], 0.0, -jnp.inf))
            action = jnp.where(votes_for_spy, state.spy, choice).astype("int32")
            state, step = ENV.step(state, {GROUP: action}, jax.random.fold_in(key, 1))
            total += step.reward
        return total

    play_all = jax.jit(jax.vmap(lambda key: (play(key, False), play(key, True))))
    random_return, best_return = (float(x.mean()) for x in play_all(jax.random.split(seed_key(2), 4_000)))
    choices = [[v for v in range(4) if v != player] for player in range(4)]
    per_round = np.mean([success_prob(ENV, absentee_probs(list(v), 0, False), 0) for v in itertools.product(*choices)])
    assert abs(random_return - ENV.num_rounds * per_round) < 0.08
    assert abs(best_return - ENV.optimal_return()) < 0.08 and ENV.optimal_return() == pytest.approx(4.0)


@pytest.mark.long
def test_beliefs_match_bayes_rule():
    rng = np.random.default_rng(0)
    reset, vote = jax.jit(ENV.reset), jax.jit(lambda state, votes, key: ENV.step(state, {GROUP: votes}, key))
    for seed in range(4):
        state, _ = reset((), seed_key(seed))
        missions = []
        for turn in range(ENV.num_rounds):
            before = state
            votes = jnp.asarray([rng.choice([v for v in range(4) if v != i]) for i in range(4)], "int32")
            state, step = vote(state, votes, seed_key(10 * seed + turn))
            absentee = int(np.argmax(np.asarray(state.num_absences - before.num_absences)))
            missions.append((absentee, float(step.reward) == 0.0))
        beliefs = np.asarray(ENV.beliefs(state))
        for player in range(4):
            weights = np.zeros(4)
            for candidate in set(range(4)) - {player}:
                weight = 0.5 if int(state.suspects[player]) == candidate else 0.5 / 2
                for absentee, failed in missions:
                    fails = 0.2 if absentee == candidate else 0.2 + 0.8 * 0.6
                    weight *= fails if failed else 1 - fails
                weights[candidate] = weight
            np.testing.assert_allclose(beliefs[player], weights / weights.sum(), rtol=1e-4, atol=1e-6)


@pytest.mark.long
def test_suspicions_are_right_as_often_as_declared_and_never_of_oneself():
    states, _ = jax.jit(jax.vmap(lambda key: ENV.reset((), key)))(jax.random.split(seed_key(3), 4_000))
    spy, suspects = np.asarray(states.spy), np.asarray(states.suspects)
    assert (suspects != np.arange(4)).all() and np.bincount(spy).min() > 850
    loyal = spy[:, None] != np.arange(4)
    right = (suspects == spy[:, None])[loyal].mean()
    assert abs(right - 0.5) < 0.03 and (suspects != spy[:, None])[~loyal].all()


@pytest.mark.long
def test_players_see_the_record_but_no_other_role_or_suspicion():
    env = HiddenSpy(num_players=4, num_rounds=5)
    state, step = start(env, 1)
    votes = jnp.array([1, 2, 0, 0], "int32")
    state, step = env.step(state, {GROUP: votes}, seed_key(4))
    spy, suspects = int(state.spy), np.asarray(state.suspects)
    eye = np.eye(4)
    absent = np.asarray(state.num_absences) / 5
    failed = float(step.reward) == 0.0
    with_player = (1 - 5 * absent) * failed / 5
    for player in range(4):
        expected = [
            eye[player],
            eye[suspects[player]],
            [float(player == spy)],
            eye[np.asarray(state.votes)].reshape(-1),
            eye[np.asarray(state.votes)].reshape(-1) / 5,
            with_player,
            absent,
            absent * failed,
            [0.2],
        ]
        np.testing.assert_allclose(step.observation[GROUP][player], np.concatenate(expected), atol=1e-6)
    assert step.observation[GROUP].shape == (4, env.spec.observation_space.spaces[0][1].shape[0])
    other_spy = next(i for i in range(4) if i != spy)
    others = [i for i in range(4) if i not in (spy, other_spy)]
    moved = eqx.tree_at(
        lambda s: (s.spy, s.suspects), state, (jnp.int32(other_spy), state.suspects.at[spy].set(others[0]))
    )
    same = np.asarray(env._time_step(moved, step.reward).observation[GROUP])[others]
    assert (same == np.asarray(step.observation[GROUP])[others]).all()
    assert (np.asarray(step.privileged) == eye[spy]).all()


def test_only_loyal_players_act_unless_the_spy_learns():
    state, step = start(ENV)
    spy = int(state.spy)
    alive, mask = np.asarray(step.alive[GROUP]), np.asarray(step.action_mask[GROUP])
    assert (alive == (np.arange(4) != spy)).all() and (mask[spy] == [True, False, False, False]).all()
    assert all((mask[i] == (np.arange(4) != i)).all() for i in range(4) if i != spy)

    env = HiddenSpy(num_players=4, num_rounds=2, accident_prob=0.01, spy_learns=True)
    state, step = start(env)
    spy = int(state.spy)
    mask = np.asarray(step.action_mask[GROUP])
    votes = np.arange(4) != np.arange(4)[:, None]
    assert step.alive[GROUP].all() and (mask[:, :4] == votes).all()
    assert (mask[spy, 4:] == votes[spy]).all() and not np.delete(mask[:, 4:], spy, axis=0).any()
    target = next(i for i in range(4) if i != spy)
    calm = jnp.where(jnp.arange(4) == target, (target + 1) % 4, target).astype("int32")
    for sabotage, wins in ((False, 1.0), (True, 0.0)):
        action = calm.at[spy].add(4 * sabotage)
        after, step = env.step(state, {GROUP: action}, seed_key(5))
        assert int(after.num_absences[target]) == 1 and (np.asarray(after.votes) == np.asarray(calm)).all()
        reward = np.asarray(step.agent_outcomes[GROUP].reward)
        assert float(step.reward) == wins and (reward == np.where(np.arange(4) == spy, 1 - wins, wins)).all()
    after, step = env.step(after, {GROUP: calm}, seed_key(6))
    assert bool(step.terminated) and not step.alive[GROUP].any() and not step.truncated


@pytest.mark.long
@pytest.mark.parametrize("settings", [{}, {"spy_learns": True}, {"belief_visible": True, "roles_visible": True}])
def test_contract(settings):
    check_environment(HiddenSpy(num_players=4, num_rounds=3, **settings))


@pytest.mark.parametrize("settings", [{"num_players": 2}, {"accident_prob": 0.0}, {"clue_prob": 1.0}])
def test_settings_that_make_no_game_are_refused(settings):
    with pytest.raises(UserError):
        HiddenSpy(**settings)
