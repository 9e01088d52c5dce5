"""JaxMARL adapter: observations, rewards, masks and ends against JaxMARL itself, with the same keys and actions."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.errors import UserError
from thespis.core.laws.components import check_environment
from thespis.core.laws.random_samples import random_legal_action
from thespis.core.spaces import Discrete, unscale_action
from thespis.envs import registry
from thespis.envs.compiled.jaxmarl import JaxMarl
from thespis.envs.compiled.jaxmarl_metadata import ENV_NAMES, MAPS, make_env, suppress_output

ENVS = [
    "MPE_simple_tag_v3",
    "HeuristicEnemySMAX/3m?max_steps=20",
    "hanabi?num_agents=3",
    "switch_riddle",
    "overcooked/cramped_room?max_steps=12",
    "coin_game?num_inner_steps=3&num_outer_steps=2",
]
OTHER_ENVS = (
    "MPE_simple_world_comm_v3",
    "MPE_simple_crypto_v3",
    "MPE_simple_speaker_listener_v4",
    "MPE_simple_reference_v3",
    "MPE_simple_facmac_3a_v1",
    "SMAX/2s3z",
    "SMAX/smacv2_5_units",
    "HeuristicEnemySMAX/3s_vs_5z",
    "overcooked/forced_coord",
    "overcooked_v2/long_room",
    "jaxnav?max_steps=40",
    "coin_game",
    "jaxnav?max_steps=90&evaporating=True",
)
TOLERANCES = {"rtol": 1e-4, "atol": 1e-4}
"""Tolerances: two programs of one formula differ in the last bits, and simulated dynamics amplify that."""


def make_pair(name):
    """The environment of the library, its agents' names by group, and our adapter."""
    env = JaxMarl(name)
    with suppress_output():
        library_env = make_env(name)[0]
    members = {
        g.name: [n for n in library_env.agents if (n.rstrip("0123456789").rstrip("_") or "agent") == g.name]
        for g in env.spec.groups
    }
    return library_env, members, env


def side_by_side(name, ticks, seed=0):
    """Runs both with the same keys and random legal actions; yields for each tick what each of them returned."""
    library_env, members, env = make_pair(name)
    spec, rng, key = env.spec, np.random.default_rng(seed), jax.random.key(seed)
    groups = dict(spec.action_space.spaces)
    reset, env_step = jax.jit(env.reset), jax.jit(env.step)
    with suppress_output():
        obs, library_state = library_env.reset(key)
        advance = jax.jit(library_env.step_env)
        state, step = reset(spec.params, key)
        yield members, (obs, None, None, library_state, {}), state, step
        for t in range(ticks):
            action = {}
            for group, names in members.items():
                legal = None if step.action_mask is None else np.asarray(step.action_mask[group])
                action[group] = unscale_action(
                    groups[group], random_legal_action(groups[group], legal, rng, (len(names),))
                )
            library_actions = {n: action[group][i] for group, names in members.items() for i, n in enumerate(names)}
            step_key = jax.random.fold_in(key, t)
            obs, library_state, rewards, dones, info = advance(step_key, library_state, library_actions)
            state, step = env_step(state, action, step_key)
            yield members, (obs, rewards, dones, library_state, info), state, step
            if bool(dones["__all__"]):
                return


@pytest.mark.parametrize(
    "name", [pytest.param("HeuristicEnemySMAX/3m?max_steps=20", marks=pytest.mark.slow), "switch_riddle"]
)
@pytest.mark.slow
def test_contract(name):
    check_environment(JaxMarl(name), num_envs=2, num_steps=24)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*OTHER_ENVS, *ENVS])
def test_contract_of_other_envs(name):
    check_environment(JaxMarl(name), num_envs=2, num_steps=110)


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHER_ENVS)
def test_other_envs_match_jaxmarl(name):
    assert_matches_library(name)


@pytest.mark.long
@pytest.mark.parametrize("name", [n if n == "switch_riddle" else pytest.param(n, marks=pytest.mark.slow) for n in ENVS])
def test_env_matches_jaxmarl(name):
    assert_matches_library(name)


def assert_matches_library(name):
    """Compares observations, rewards, agents and ends at every step of one episode."""
    terminated, ended = None, False
    for members, (obs, rewards, dones, _, _), _, step in side_by_side(name, 400):
        alive = {g: np.asarray(x) for g, x in step.alive.items()}
        terminated = terminated or {g: np.zeros(len(names), bool) for g, names in members.items()}
        for group, names in members.items():
            terminated[group] |= np.asarray(step.agent_outcomes[group].terminated)
            assert not (alive[group] & terminated[group]).any()
            for i, agent in enumerate(names):
                if not terminated[group][i]:
                    np.testing.assert_allclose(np.ravel(step.observation[group][i]), np.ravel(obs[agent]), **TOLERANCES)
                else:
                    assert not np.any(step.observation[group][i])
                if rewards is not None:
                    np.testing.assert_allclose(step.agent_outcomes[group].reward[i], rewards[agent], **TOLERANCES)
        if rewards is not None:
            agent_rewards = [float(rewards[agent]) for names in members.values() for agent in names]
            np.testing.assert_allclose(step.reward, np.mean(agent_rewards), rtol=1e-6, atol=1e-6)
            ended = bool(dones["__all__"])
            assert bool(step.terminated | step.truncated) == ended
            assert not bool(step.terminated & step.truncated)
    assert ended


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("MPE_simple_spread_v3?max_steps=7", 8),  # the library compares before it counts
        ("overcooked/cramped_room?max_steps=9", 9),
        ("coin_game?num_inner_steps=3&num_outer_steps=2", 6),
        ("jaxnav?max_steps=5", 5),
    ],
)
def test_time_limit_truncates(name, steps):
    *_, last = (step for _, _, _, step in side_by_side(name, 50))
    assert bool(last.truncated) and not bool(last.terminated)
    assert JaxMarl(name).spec.time_limit == steps == len(list(side_by_side(name, 50))) - 1
    assert not any(np.any(outcome.terminated) for outcome in last.agent_outcomes.values())


@pytest.mark.slow
def test_battle_terminates_or_is_truncated():
    """Units that stand still are shot; within one step none is."""
    episode = list(side_by_side("HeuristicEnemySMAX/3m", 101))
    last = episode[-1][3]
    assert bool(last.terminated) and len(episode) < 102
    *_, last_step = (step for _, _, _, step in side_by_side("HeuristicEnemySMAX/3m?max_steps=0", 3))
    assert bool(last_step.truncated) and not bool(last_step.terminated) and np.all(last_step.alive["ally"])


@pytest.mark.slow
def test_dead_agents_observe_nothing_and_terminate_once():
    num_terminations = np.zeros(3, int)
    for _, (_, _, dones, library_state, _), _, step in side_by_side("HeuristicEnemySMAX/3m", 101, seed=3):
        units = np.asarray(library_state.state.unit_alive[:3])
        num_terminations += np.asarray(step.agent_outcomes["ally"].terminated)
        if dones is not None and not bool(step.terminated):
            np.testing.assert_array_equal(step.alive["ally"], units)
            np.testing.assert_array_equal(num_terminations, ~units)
        np.testing.assert_array_equal(
            np.asarray(step.action_mask["ally"])[num_terminations > 0],
            np.eye(8, dtype=bool)[[0] * num_terminations.sum()],
        )
    assert num_terminations.max() == 1 and num_terminations.sum() >= 1


@pytest.mark.slow
def test_action_masks_and_global_state_match_jaxmarl():
    jaxmarl_env = make_pair("SMAX/3m")[0]
    env = JaxMarl("SMAX/3m")
    assert env.spec.has_action_mask and env.spec.privileged_space.shape == (jaxmarl_env.state_size,)
    for members, (obs, _, _, library_state, _), _, step in side_by_side("SMAX/3m", 10):
        masks = jaxmarl_env.get_avail_actions(library_state)
        for group, names in members.items():
            expected = np.stack([np.asarray(masks[n], bool) for n in names])
            alive = np.asarray(step.alive[group])
            np.testing.assert_array_equal(np.asarray(step.action_mask[group])[alive], expected[alive])
        np.testing.assert_array_equal(step.privileged, obs["world_state"])


@pytest.mark.slow
def test_hanabi_has_one_acting_player():
    legal = jax.jit(make_pair("hanabi")[0].get_legal_moves)
    turns = []
    for _, (_, _, dones, library_state, _), _, step in side_by_side("hanabi", 12):
        if dones is not None and bool(dones["__all__"]):
            break
        alive = np.asarray(step.alive["agent"])
        assert alive.sum() == 1
        turns.append(int(np.argmax(alive)))
        mover = f"agent_{turns[-1]}"
        np.testing.assert_array_equal(step.action_mask["agent"][turns[-1]], legal(library_state)[mover].astype(bool))
        assert not step.action_mask["agent"][turns[-1], -1]  # the acting player cannot pass
    assert turns[:4] == [turns[0], 1 - turns[0]] * 2


@pytest.mark.slow
def test_shaped_rewards_reach_agents_but_not_the_reported_reward():
    """Agents that do something useful get shaped rewards; their weight is a parameter of the episode."""
    names = {amount: f"overcooked/cramped_room?shaping={amount}" for amount in (0, 1, 0.5)}
    envs = {amount: JaxMarl(name) for amount, name in names.items()}
    assert {float(env.spec.params.shaping) for env in envs.values()} == {0.0, 1.0, 0.5}
    bonuses, shaped_rewards = {amount: [] for amount in envs}, []
    for amount, name in names.items():
        for _, (_, rewards, _, _, info), _, step in side_by_side(name, 150):
            if rewards is not None:
                bonuses[amount].append(np.asarray(step.agent_outcomes["agent"].reward) - float(step.reward))
                shaped_rewards += (
                    [[float(info["shaped_reward"][f"agent_{i}"]) for i in range(2)]] if amount == 1 else []
                )
    assert np.any(shaped_rewards)
    np.testing.assert_allclose(bonuses[1], shaped_rewards, atol=1e-5)
    np.testing.assert_allclose(bonuses[0.5], 0.5 * np.asarray(shaped_rewards), atol=1e-5)
    assert not np.any(bonuses[0])


def test_agents_of_different_spaces_are_separate_groups():
    spec = JaxMarl("MPE_simple_tag_v3?num_adversaries=2").spec
    assert [(g.name, g.num_agents) for g in spec.groups] == [("adversary", 2), ("agent", 1)]
    assert {name: part.shape for name, part in spec.observation_space.spaces} == {"adversary": (14,), "agent": (12,)}
    assert dict(spec.action_space.spaces)["agent"] == Discrete(5)


def test_map_names_are_those_of_jaxmarl():
    with suppress_output():
        from jaxmarl.environments.overcooked import overcooked_layouts
        from jaxmarl.environments.overcooked_v2 import overcooked_v2_layouts
        from jaxmarl.environments.smax.smax_env import MAP_NAME_TO_SCENARIO
        from jaxmarl.registration import registered_envs
    assert set(MAPS["overcooked"]) == set(overcooked_layouts)
    assert set(MAPS["overcooked_v2"]) == set(overcooked_v2_layouts)
    assert set(MAPS["SMAX"]) == set(MAP_NAME_TO_SCENARIO)
    assert {name.partition("/")[0] for name in ENV_NAMES} <= set(registered_envs)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("jaxmarl:MPE_simple_spred_v3", "jaxmarl:MPE_simple_spread_v3"),
        ("jaxmarl:overcooked/crampd_room", "jaxmarl:overcooked/cramped_room"),
        ("jaxmarl:storm", "unknown environment"),
    ],
)
def test_unknown_name_suggests_the_nearest(name, message):
    with pytest.raises(UserError, match=message) as caught:
        registry.resolve_env(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("MPE_simple_spread_v3?max_step=5", "nearest: max_steps"),
        ("HeuristicEnemySMAX/3m?atack_mode=closest", "nearest: attack_mode"),
        ("hanabi?num_agents=9", "cannot be made"),
        ("MPE_simple_spread_v3?shaping=1", "takes no 'shaping'"),
        ("MPE_simple_spread_v3?num_agents", "cannot read 'num_agents'"),
    ],
)
def test_wrong_options_are_one_line_errors(name, message):
    with pytest.raises(UserError, match=message) as caught:
        _ = JaxMarl(name).spec
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_library_prints_nothing_and_is_imported_lazily():
    code = (
        "import sys; from thespis.envs import registry; registry.list_envs();"
        "env = registry.make_compiled('jaxmarl:hanabi');"
        "assert 'jaxmarl' not in sys.modules; err = sys.stderr = open('/dev/null', 'w'); env.spec;"
        "assert 'jaxmarl' in sys.modules and sys.stderr is err"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout == process.stderr == ""


def test_first_use_under_jit():
    env = registry.make_compiled("jaxmarl:MPE_simple_spread_v3")
    state, step = jax.jit(lambda key: env.reset((), key))(jax.random.key(0))
    assert state.agent_terminated.shape == (3,) and jnp.isfinite(step.observation["agent"]).all()
