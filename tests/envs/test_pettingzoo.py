"""PettingZoo adapter: against PettingZoo, and environments of a user whose agents die, join and wait."""

import subprocess
import sys

import numpy as np
import pettingzoo as library
import pytest
import user_multi_agent_envs

import thespis
from thespis.core.errors import UserError
from thespis.core.laws.components import check_host_environment
from thespis.core.laws.random_samples import random_legal_action
from thespis.core.spaces import Box, Discrete, map_groups
from thespis.data.feeds import Rollouts
from thespis.envs import registry
from thespis.envs.host import pettingzoo

ENVS = [
    "pettingzoo:mpe/simple_tag_v3",
    "pettingzoo:mpe/simple_speaker_listener_v4",
    "pettingzoo:classic/tictactoe_v3",
    "pettingzoo:classic/connect_four_v3",
    "pettingzoo:classic/rps_v2",
    "pettingzoo:sisl/pursuit_v5?max_cycles=20",
    "pettingzoo:butterfly/knights_archers_zombies_v11?max_cycles=150",
    user_multi_agent_envs.Candles,
    user_multi_agent_envs.SavableCandles,
    user_multi_agent_envs.TruncatedPair,
    user_multi_agent_envs.Ring,
    user_multi_agent_envs.make_candles,
]


def play(vector_env, ticks, seeds=(3, 4), rng=None):
    """Random legal play; yields the view before each step, the actions, the time step and the view after it."""
    rng = rng or np.random.default_rng(0)
    spec, view = vector_env.spec, vector_env.reset(list(seeds)).view

    def choose(space, axes, legal):
        chosen = random_legal_action(space, legal, rng, (vector_env.num_envs, *axes))
        return chosen * 3 + 1 if isinstance(space, Box) else chosen

    for _ in range(ticks):
        action = map_groups(spec.groups, spec.action_space, choose, view.action_mask)
        step, next_view = vector_env.step(action)
        yield view, action, step, next_view
        view = next_view


def env_id(env):
    """The pytest id of an environment, the same in every process."""
    return env if isinstance(env, str) else getattr(env, "__name__", type(env).__name__)


FAST = ["pettingzoo:classic/tictactoe_v3", user_multi_agent_envs.Candles]  # one is turn-based, one is a user's


@pytest.mark.parametrize("env", FAST, ids=env_id)
def test_contract(env):
    """Over a few episodes."""
    check_host_environment(registry.make_host(env, 2), num_steps=24)


@pytest.mark.slow
@pytest.mark.parametrize("env", ENVS, ids=env_id)
def test_contract_over_many_steps(env):
    check_host_environment(registry.make_host(env, 2), num_steps=60)


@pytest.mark.parametrize("n", [1, 3])
def test_agents_die_and_one_joins(n):
    """Every episode by the rules of ``Candles``: who acts, who terminates, the reward of each."""
    vector_env = registry.make_host(user_multi_agent_envs.Candles, n)
    assert [(g.name, g.num_agents) for g in vector_env.spec.groups] == [("candle", 2), ("late", 1)]
    assert vector_env.spec.has_action_mask and dict(vector_env.spec.action_space.spaces)["late"] == Discrete(3)
    times, ends, joined = np.zeros(n, int), 0, 0
    for view, action, step, next_view in play(vector_env, 60, range(n)):
        times += 1
        over = step.terminated | step.truncated
        assert not step.truncated.any()
        for group in ("candle", "late"):
            alive_before, terminated, alive = (
                view.alive[group],
                step.agent_outcomes[group].terminated,
                step.alive[group],
            )
            assert not (terminated & ~alive_before).any() and not (terminated & alive).any()
            np.testing.assert_array_equal(step.observation[group][~alive], 0)
            assert (step.action_mask[group][~alive] == [True, False, False]).all()
            expected = np.where(action[group] == 0, 1.0, times[:, None])  # action 1 of PettingZoo is our 0
            np.testing.assert_array_equal(step.agent_outcomes[group].reward, np.where(alive_before, expected, 0))
        np.testing.assert_array_equal(
            step.alive["late"][:, 0], (times >= 2) & ~step.agent_outcomes["late"].terminated[:, 0] & ~over
        )
        everyone = np.concatenate([step.agent_outcomes[g].reward for g in ("candle", "late")], axis=1)
        np.testing.assert_allclose(step.reward, everyone.mean(axis=1), rtol=1e-6)
        alive = np.concatenate([step.alive[g] for g in ("candle", "late")], axis=1)
        np.testing.assert_array_equal(over, ~alive.any(axis=1))
        joined, ends, times = joined + step.alive["late"].sum(), ends + over.sum(), np.where(over, 0, times)
        assert next_view.alive["candle"][over].all() and not next_view.alive["late"][over].any()
    assert ends > 5 and joined > 5


def test_truncation_of_one_agent_terminates_it_and_of_all_truncates():
    vector_env = registry.make_host(user_multi_agent_envs.TruncatedPair, 1)
    steps = [step for _, _, step, _ in play(vector_env, 3, [0])]
    terminated = [step.agent_outcomes["a"].terminated[0].tolist() for step in steps]
    assert terminated == [[True, False], [False, False], [False, False]]
    assert [bool(step.truncated[0]) for step in steps] == [False, False, True]
    assert not any(step.terminated[0] for step in steps)
    assert steps[-1].alive["a"].tolist() == [[False, True]] and steps[-1].observation["a"].tolist() == [[0, 3]]


def test_turn_based_agents_that_leave_are_skipped():
    """r_0 leaves, r_1 stays, r_2 leaves: r_1 wins."""
    vector_env = registry.make_host(user_multi_agent_envs.Ring, 1)
    numbers, view = iter([0, 1, 0]), vector_env.reset([0]).view
    assert view.alive["r"].tolist() == [[True, False, False]]
    outcomes = []
    for number in numbers:
        step, view = vector_env.step({"r": np.full((1, 3), number, "int32")})
        outcomes.append(
            (
                step.agent_outcomes["r"].reward[0].tolist(),
                step.agent_outcomes["r"].terminated[0].tolist(),
                step.alive["r"][0].tolist(),
            )
        )
    assert outcomes == [
        ([-1, 0, 0], [True, False, False], [False, True, False]),
        ([0, 0, 0], [False, False, False], [False, False, True]),
        ([0, 2, -1], [False, True, True], [False, False, False]),
    ]
    assert step.terminated[0] and not step.truncated[0]
    assert view.alive["r"].tolist() == [[True, False, False]]


def test_turn_based_episode_is_truncated():
    vector_env = registry.make_host(user_multi_agent_envs.Ring, 1)
    vector_env.reset([0])
    for _ in range(20):
        step, _ = vector_env.step({"r": np.ones((1, 3), "int32")})
    assert step.truncated[0] and not step.terminated[0] and not step.agent_outcomes["r"].terminated.any()
    np.testing.assert_array_equal(step.observation["r"][0, :, 1], 20)


def test_connect_four_matches_pettingzoo():
    """The same actions in both: observations, masks, rewards and ends."""
    vector_env = registry.make_host("pettingzoo:classic/connect_four_v3", 1)
    aec_env, ends = library.make("aec", "classic/connect_four-v3"), 0
    aec_env.reset(seed=0)
    for view, action, step, next_view in play(vector_env, 80, [0]):
        player = aec_env.possible_agents.index(aec_env.agent_selection)
        assert view.alive["player"][0].tolist() == [player == 0, player == 1]
        obs = aec_env.observe(aec_env.agent_selection)
        np.testing.assert_array_equal(view.observation["player"][0, player], obs["observation"])
        np.testing.assert_array_equal(view.action_mask["player"][0, player], obs["action_mask"].astype(bool))
        assert view.action_mask["player"][0, 1 - player].tolist() == [True] + [False] * 6
        aec_env.step(int(action["player"][0, player]))
        np.testing.assert_array_equal(step.agent_outcomes["player"].reward[0], list(aec_env.rewards.values()))
        over = all(aec_env.terminations.values())
        assert bool(step.terminated[0]) == over == bool(step.agent_outcomes["player"].terminated.all())
        if over:
            assert not step.observation["player"].any()  # both have terminated
            assert not next_view.observation["player"].any()
            ends += 1
            aec_env.reset(seed=0)
    assert ends >= 2


def test_simple_tag_matches_mpe2():
    """With the same seed for the first episode: observations bit for bit, and rewards."""
    from mpe2 import simple_tag_v3

    vector_env = registry.make_host("pettingzoo:mpe/simple_tag_v3?max_cycles=9", 1)
    mpe_env = simple_tag_v3.parallel_env(max_cycles=9)
    obs, _ = mpe_env.reset(seed=int(np.random.default_rng(5).integers(2**31)))
    members = {"adversary": [f"adversary_{i}" for i in range(3)], "agent": ["agent_0"]}
    for tick, (view, action, step, _) in enumerate(play(vector_env, 9, [5])):
        for group, names in members.items():
            np.testing.assert_array_equal(view.observation[group][0], [obs[name].astype("float32") for name in names])
        mpe_actions = {
            name: int(action[group][0, i]) for group, names in members.items() for i, name in enumerate(names)
        }
        obs, rewards, _, truncations, _ = mpe_env.step(mpe_actions)
        for group, names in members.items():
            np.testing.assert_allclose(
                step.agent_outcomes[group].reward[0], [rewards[name] for name in names], rtol=1e-6
            )
        assert bool(step.truncated[0]) == all(truncations.values()) == (tick == 8) and not step.terminated[0]


@pytest.mark.slow
def test_dead_agents_do_not_act():
    """Knights and archers die one by one until none is left."""
    vector_env = registry.make_host("pettingzoo:butterfly/knights_archers_zombies_v11", 1)
    early_deaths = ends = 0
    for view, _, step, _ in play(vector_env, 400, [1]):
        before, after = (np.concatenate([a[g][0] for g in ("archer", "knight")]) for a in (view.alive, step.alive))
        terminated = np.concatenate([step.agent_outcomes[g].terminated[0] for g in ("archer", "knight")])
        np.testing.assert_array_equal(after, before & ~terminated)
        over = bool(step.terminated[0])
        assert over == (not after.any())
        early_deaths, ends = early_deaths + bool(terminated.any() and not over), ends + over
    assert ends and early_deaths


def test_saved_state_of_envs_with_and_without_save_state():
    savable = registry.make_host(user_multi_agent_envs.SavableCandles, 2)
    savable.reset([1, 2])
    assert any(name.startswith("1/") for name in savable.get_state())
    assert registry.make_host(user_multi_agent_envs.Candles, 2).get_state() is None
    assert registry.make_host("pettingzoo:mpe/simple_spread_v3", 2).get_state() is None


@pytest.mark.parametrize(
    "env",
    [
        user_multi_agent_envs.Candles(),
        user_multi_agent_envs.Candles,
        "user_multi_agent_envs:Candles",
        "pettingzoo:mpe/simple_tag_v3",
    ],
    ids=env_id,
)
def test_multi_agent_envs_are_recognized_before_construction(env):
    assert registry.resolve_env(env).kind == "host"
    assert registry.is_multi_agent(env)


@pytest.mark.slow
@pytest.mark.parametrize("env", [user_multi_agent_envs.Candles, "pettingzoo:classic/tictactoe_v3"], ids=env_id)
def test_single_agent_method_trains_all_agents(env, tmp_path):
    method = thespis.PPO(feed=Rollouts(num_steps=16, num_envs=2), minibatch_size=16, num_epochs=1)
    run = thespis.train(method, env, steps=128, out=tmp_path / "run", episodes=1)
    assert run.final_scores["step"] == 128 and np.isfinite(run.final_scores["greedy"]["scores"]).all()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pettingzoo:mpe/simple_spred_v3", "pettingzoo:mpe/simple_spread_v3"),
        ("pettingzoo:classic/tictactoe_v9", "pettingzoo:classic/tictactoe_v3"),
        ("pettingzoo:nothing", "thespis list envs"),
    ],
)
def test_unknown_name_suggests_the_nearest(name, message):
    with pytest.raises(UserError, match=message):
        registry.resolve_env(name)


def test_errors_are_one_line():
    class Nameless(user_multi_agent_envs.TruncatedPair):
        @property
        def possible_agents(self):
            raise AttributeError("possible_agents")

    class NanReward(user_multi_agent_envs.TruncatedPair):
        def step(self, actions):
            obs, rewards, *rest = super().step(actions)
            return obs, dict.fromkeys(rewards, float("nan")), *rest

    class Failing(user_multi_agent_envs.TruncatedPair):
        def step(self, actions):
            raise RuntimeError("the candle fell over")

    with pytest.raises(UserError, match="set possible_agents"):
        registry.make_host(Nameless, 1)
    for env, message in (
        (NanReward, "not finite"),
        (Failing, "environment 0, step 1, raised RuntimeError: the candle fell over"),
    ):
        with pytest.raises(UserError, match=message):
            list(play(registry.make_host(env, 1), 1, [0]))
    if "classic/chess_v6" not in pettingzoo.list_envs():
        with pytest.raises(UserError, match="needs a package that is not installed: No module named 'chess'"):
            registry.make_host("pettingzoo:classic/chess_v6", 1)
    with pytest.raises(UserError, match="has many agents and ppo is for one"):
        thespis.train("ppo", user_multi_agent_envs.make_candles, steps=16)
    with pytest.raises(UserError, match="cannot be made"):
        registry.make_host("pettingzoo:mpe/simple_spread_v3?cycles=3", 1)
    with pytest.raises(UserError, match="2 environments need 2 seeds"):
        registry.make_host(user_multi_agent_envs.TruncatedPair, 2).reset([0])


def test_names_are_listed_without_importing_pettingzoo():
    code = (
        "import sys; from thespis.envs.host.pettingzoo import list_envs; print(*list_envs());"
        "assert 'pettingzoo' not in sys.modules"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = process.stdout.split()
    assert (
        {"mpe/simple_spread_v3", "classic/tictactoe_v3", "sisl/pursuit_v5"} <= set(names) == set(pettingzoo.list_envs())
    )
