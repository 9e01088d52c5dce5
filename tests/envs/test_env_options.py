"""Options of environments: in their names, from the command line and Python, and for every library that takes them."""

import numpy as np
import pytest
import user_envs

import thespis
from thespis.core.errors import UserError
from thespis.envs import registry
from thespis.envs.host.gymnasium import GymnasiumSyncEnv
from thespis.envs.options import add_options, split_options


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"a": 1, "b": 2.5, "c": True, "d": None, "e": "text"},
        {"a": (1, 2), "b": [1.0], "c": {"x": "y"}, "d": "1", "e": "50% & more? a:b#c", "f": ""},
        {"a": "true", "b": "False", "c": False},
    ],
)
def test_a_name_holds_any_options(options):
    name = add_options("Name-v0", options)
    assert split_options(name) == ("Name-v0", options) and name.count("?") == bool(options) and ":" not in name


def test_booleans_may_be_written_as_in_settings():
    assert split_options("Name-v0?a=true&b=false&c=False")[1] == {"a": True, "b": False, "c": False}


def test_later_options_replace_earlier_ones():
    assert add_options("Name-v0?a=1&b=2", ["b=3", "c=x"]) == "Name-v0?a=1&b=3&c=x"


@pytest.mark.parametrize("options", [["size"], ["=3"], {"f": print}, {"x": np.zeros(2)}])
def test_options_that_cannot_be_recorded_are_refused(options):
    with pytest.raises(UserError, match=r"write key=value|run.json cannot hold"):
        add_options("Name-v0", options)


def test_options_reach_gymnasium_and_gymnax():
    assert registry.make_host("gymnasium:CartPole-v1?max_episode_steps=7", 1).spec.time_limit == 7
    actions = [
        registry.make_compiled(f"Breakout-MinAtar?use_minimal_action_set={minimal}").spec.action_space.n
        for minimal in (True, False)
    ]
    assert actions == [3, 6]


def test_options_reach_the_users_class():
    envs = registry.make_host("user_envs:Sized?size=4", 2)
    assert isinstance(envs, GymnasiumSyncEnv) and envs.spec.observation_space.shape == (4,)
    assert registry.make_compiled("thespis.envs.probes.values:ConstantRewardProbe?time_limit=3").spec.time_limit == 3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gymnasium:CartPole-v1?wings=2", "cannot be made with.*wings"),
        ("pgx:tic_tac_toe?size=4", "take no options"),
        ("user_envs:INSTANCE?size=4", "is an object"),
        ("user_envs:Sized?colour=4", "could not make an environment"),
        ("gymnasium:CartPole-v1?wings", "cannot read 'wings'"),
    ],
)
def test_options_that_nobody_takes_are_one_line(name, message):
    with pytest.raises(UserError, match=message) as caught:
        registry.make_host(name, 1)
    assert "\n" not in str(caught.value)


def test_options_are_for_names():
    assert registry.with_env_args("CartPole-v1", {"a": 1}) == "CartPole-v1?a=1"
    assert registry.with_env_args(user_envs.Coded, None) is user_envs.Coded
    with pytest.raises(UserError, match=r"functools\.partial"):
        registry.with_env_args(user_envs.Coded, {"a": 1})


@pytest.mark.long
def test_a_run_is_trained_and_evaluated_with_its_options(tmp_path, monkeypatch):
    monkeypatch.setattr("thespis.train_run.write_report", lambda runs, out: out)
    settings = {"num_steps": 8, "hidden_sizes": "4", "num_epochs": 1}
    run = thespis.train(
        "ppo",
        "gymnasium:CartPole-v1",
        env_args={"max_episode_steps": 7},
        steps=32,
        envs=2,
        episodes=3,
        settings=settings,
        out=tmp_path / "run",
    )
    assert run.config["env"] == "gymnasium:CartPole-v1?max_episode_steps=7"
    assert run.final_scores is not None and run.final_scores["greedy"]["lengths"] == [[7, 7, 7]]
    assert thespis.load(run.path).evaluate(2)["sampled"]["lengths"] == [[7, 7]]
