"""``thespis doctor`` checks whatever ``thespis train`` accepts: teams, games, duels, text; named or the user's own."""

import importlib.util

import many_agent_envs
import pytest

from thespis.cli.doctor_checks import environment_checks
from thespis.cli.doctor_checks.check import TimeBudget, failed_checks, fast_compilation

SLOW = pytest.mark.slow


def installed(module: str) -> pytest.MarkDecorator:
    """Skip a test if a library is not installed."""
    return pytest.mark.skipif(importlib.util.find_spec(module) is None, reason=f"{module} is not installed")


NAMES = [
    pytest.param("pettingzoo:mpe/simple_spread_v3", marks=[SLOW, installed("mpe2")]),
    pytest.param("pettingzoo:classic/tictactoe_v3", marks=[SLOW, installed("pygame")]),
    pytest.param("openspiel:tic_tac_toe", marks=[SLOW, installed("pyspiel")]),
    pytest.param("openspiel:kuhn_poker", marks=[SLOW, installed("pyspiel")]),
    pytest.param("openspiel:goofspiel(num_cards=4)", marks=[SLOW, installed("pyspiel")]),
    pytest.param("openspiel:matrix_rps", marks=[SLOW, installed("pyspiel")]),
    pytest.param("jaxmarl:MPE_simple_spread_v3", marks=[SLOW, installed("jaxmarl")]),
    pytest.param("jaxmarl:SMAX/3m", marks=[SLOW, installed("jaxmarl")]),
    pytest.param("jaxmarl:overcooked/cramped_room", marks=[SLOW, installed("jaxmarl")]),
    pytest.param("pgx:tic_tac_toe", marks=[SLOW, installed("pgx")]),
    pytest.param("pgx:kuhn_poker", marks=[SLOW, installed("pgx")]),
    pytest.param("text:kuhn-duel", marks=SLOW),
    pytest.param("text:tictactoe-duel", marks=SLOW),
    pytest.param("text:echo", marks=SLOW),
    pytest.param("probe:shifts", marks=SLOW),
]
OWN = {
    "multi-agent environment": [
        many_agent_envs.Meeting,
        pytest.param(many_agent_envs.MEETING, marks=SLOW),
        pytest.param("many_agent_envs:Meeting", marks=SLOW),
        pytest.param("many_agent_envs:MEETING", marks=SLOW),
        pytest.param(many_agent_envs.Countdown, marks=SLOW),
    ],
    "text environment": [
        many_agent_envs.Repeat,
        pytest.param(many_agent_envs.GymnasiumRepeat, marks=SLOW),
        pytest.param(many_agent_envs.GymnasiumRepeat(), marks=SLOW),
        pytest.param("many_agent_envs:Repeat", marks=SLOW),
    ],
}


@pytest.fixture(autouse=True)
def fast_checks(monkeypatch):
    """Skip the timing of a SAC update and measure speed for an instant."""
    monkeypatch.setattr(environment_checks, "_sac_update_seconds", lambda spec, left: None)
    measure = environment_checks.vector_steps_per_second
    monkeypatch.setattr(environment_checks, "vector_steps_per_second", lambda envs, seconds: measure(envs, 0.02))
    with fast_compilation():
        yield


def check_env(env):
    return environment_checks.check_user_env(env, TimeBudget(60))


def assert_checked(checks):
    assert not failed_checks(checks), failed_checks(checks)
    assert {"vector environment", "seed", "episode end", "reward scale", "speed"} <= {check.name for check in checks}


@pytest.mark.parametrize("name", NAMES)
def test_environments_of_every_library_pass(name):
    assert_checked(check_env(name))


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "env"),
    [
        pytest.param(kind, *getattr(env, "values", (env,)), marks=getattr(env, "marks", ()))
        for kind, envs in OWN.items()
        for env in envs
    ],
    ids=str,
)
def test_own_environments_pass(kind, env):
    checks = check_env(env)
    assert_checked(checks)
    assert kind in checks[0].message


def test_a_team_that_ignores_its_seed_fails():
    assert failed_checks(check_env(many_agent_envs.UnseededMeeting))[0].name == "vector environment"


def test_what_cannot_be_made_is_a_failed_check_in_one_line():
    for env in (many_agent_envs.Undeclared, "openspiel:no_such_game", "pettingzoo:mpe/no_such_env_v1"):
        (check,) = check_env(env)
        assert check.name == "environment" and check.passed is False and "\n" not in check.message
    assert "possible_agents" in check_env(many_agent_envs.Undeclared)[0].message


@pytest.mark.slow
def test_advice_on_text_is_about_models_not_exploration():
    messages = [check.message for check in check_env("text:kuhn-duel")]
    assert any("--model" in message for message in messages) and not any("rnd" in message for message in messages)
