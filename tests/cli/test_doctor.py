"""``thespis doctor``: environments with exactly one fault, correct environments, and formulas with known errors."""

import dataclasses

import equinox as eqx
import faulty_envs
import gymnasium
import jax
import jax.numpy as jnp
import pytest

from thespis.cli.doctor import doctor
from thespis.cli.doctor_checks import environment_checks, gymnasium_rollout, installation_checks, invariant_checks
from thespis.cli.doctor_checks.check import CheckResult, TimeBudget, failed_checks, fast_compilation, skipped_check
from thespis.cli.doctor_checks.probe_training import ProbeResult, train_and_evaluate
from thespis.cli.main import run as command_line
from thespis.core.records import TimeStep
from thespis.envs.probes.probe import KnownValue
from thespis.envs.probes.registry import PROBES
from thespis.envs.probes.values import ConstantRewardProbe
from thespis.learners.on_policy import actor_critic
from thespis.methods.online.ppo import PPO

SLOW = pytest.mark.slow
FAULTS = [
    pytest.param(name, cls, marks=[SLOW] if cls is faulty_envs.NeverEnds else [])
    for name, classes in faulty_envs.FAULTS.items()
    for cls in classes
]
HEALTHY = [
    faulty_envs.Healthy,
    faulty_envs.HealthyDict,
    faulty_envs.FixedHorizon,
    "gymnasium:CartPole-v1",
    *(
        pytest.param(f"gymnasium:{name}", marks=SLOW)
        for name in (
            "Pendulum-v1",
            "HalfCheetah-v5",
            "MountainCar-v0",
            "Acrobot-v1",
            "Ant-v5",
            "Blackjack-v1",
            "FrozenLake-v1",
            "Taxi-v4",
        )
    ),
]
COMPILED = ["probe:coin"] + [
    pytest.param(name, marks=SLOW)
    for name in (
        "gymnax:CartPole-v1",
        "gymnax:Pendulum-v1",
        "gymnax:Catch-bsuite",
        "gymnax:Breakout-MinAtar",
        "probe:hybrid",
        "probe:masked",
        "probe:picture",
        "probe:maze",
        "envpool:CartPole-v1",
    )
]


@pytest.fixture(autouse=True)
def fast_checks(monkeypatch):
    """Skip the timing of a SAC update, whose compilation takes longer than all else (one slow test does it), and
    measure the speed of environments in a fiftieth of the time.
    """
    monkeypatch.setattr(environment_checks, "_sac_update_seconds", lambda spec, left: None)
    for module, name in ((gymnasium_rollout, "steps_per_second"), (environment_checks, "vector_steps_per_second")):
        measure = getattr(module, name)
        monkeypatch.setattr(module, name, lambda env, seconds, measure=measure: measure(env, seconds / 50))
    with fast_compilation():
        yield


def check_env(env, seconds=60.0):
    return environment_checks.check_user_env(env, TimeBudget(seconds))


@pytest.mark.parametrize(("name", "cls"), FAULTS, ids=lambda x: x if isinstance(x, str) else x.__name__)
def test_each_fault_is_the_first_failed_check(name, cls):
    failures = failed_checks(check_env(cls))
    assert failures, f"{cls.__name__} passed"
    assert failures[0].name == name and len(failures[0].message) > 30 and "\n" not in failures[0].message


def test_faults_are_many_and_distinct():
    assert len(FAULTS) >= 10 and len({fault.values[0] for fault in FAULTS}) == len(FAULTS)


@pytest.mark.parametrize("env", HEALTHY, ids=str)
def test_a_correct_environment_passes(env):
    checks = check_env(env)
    assert not failed_checks(checks), failed_checks(checks)
    assert {"determinism", "episode end", "adapter", "speed"} <= {check.name for check in checks}


@pytest.mark.long
@pytest.mark.parametrize("env", COMPILED)
def test_a_correct_compiled_environment_passes(env):
    checks = check_env(env)
    assert not failed_checks(checks), failed_checks(checks)
    assert {"vector environment", "seed", "reward scale", "speed"} <= {check.name for check in checks}


def test_an_environment_object_is_checked_and_not_closed():
    env = faulty_envs.Healthy()
    env.close = lambda: pytest.fail("closed")
    assert not failed_checks(check_env(env))


def test_a_vector_environment_is_checked():
    env = gymnasium.vector.SyncVectorEnv([faulty_envs.Healthy] * 3)
    checks = check_env(env)
    assert not failed_checks(checks) and any(check.name == "vector environment" and check.passed for check in checks)
    env.close()


class Faulty(eqx.Module):
    """A compiled environment whose time steps are changed by ``change(step)``."""

    inner: ConstantRewardProbe
    change: object = eqx.field(static=True)

    @property
    def spec(self):
        return dataclasses.replace(self.inner.spec, time_limit=None)

    def reset(self, params, key):
        return self.inner.reset(params, key)

    def step(self, state, action, key):
        state, step = self.inner.step(state, action, key)
        return state, self.change(step)


@pytest.mark.slow
def test_faults_of_compiled_environments_are_found():
    def first_failure(change):
        return failed_checks(check_env(Faulty(ConstantRewardProbe(40), change)))[0].name

    assert first_failure(lambda s: eqx.tree_at(lambda t: t.observation, s, s.observation + 5)) == "contract"
    assert first_failure(lambda s: eqx.tree_at(lambda t: t.reward, s, s.reward / 0)) == "contract"
    assert first_failure(lambda s: TimeStep(s.observation, s.reward, s.truncated, s.terminated)) == "time limit"
    assert first_failure(lambda s: eqx.tree_at(lambda t: t.reward, s, 1e6 * s.reward)) == "reward scale"


def test_an_unknown_name_is_one_line_with_a_suggestion():
    (check,) = check_env("CartPol-v1")
    assert check.passed is False and "CartPole-v1" in check.message


@pytest.mark.parametrize(
    "check",
    [
        invariant_checks.check_gae_boundaries,
        invariant_checks.check_advantage_normalization,
        invariant_checks.check_return_padding,
        invariant_checks.check_kl_gradient,
    ],
)
def test_formula_checks_pass(check):
    assert check()


@pytest.mark.long
def test_replay_check_passes():
    assert "1,024 windows" in invariant_checks.check_replay_windows()


@pytest.mark.slow
def test_seed_stream_check_passes():
    """With 32 seeds; ``tests/training/test_random_keys.py`` tests two, which is faster."""
    assert "512" not in invariant_checks.check_seed_streams()


def test_wrong_formulas_are_caught(monkeypatch):
    """Each check, with the error that it exists to detect."""

    def terminate_at_any_end(
        reward, value, next_value, terminated, ended, discount, trace, original=invariant_checks.gae
    ):
        return original(reward, value, next_value, ended, ended, discount, trace)

    def no_episode_ends(reward, value, next_value, terminated, ended, discount, trace, original=invariant_checks.gae):
        return original(reward, value, next_value, terminated, jnp.zeros_like(ended), discount, trace)

    def no_mask(reward, terminated, mask, discount, original=invariant_checks.n_step_return):
        return original(reward, terminated, jnp.ones_like(mask), discount)

    def reversed_kl(log_prob, reference, behaviour):
        return jnp.expm1(reference - log_prob) - (reference - log_prob)

    for name, broken, check in [
        ("gae", terminate_at_any_end, invariant_checks.check_gae_boundaries),
        ("gae", no_episode_ends, invariant_checks.check_gae_boundaries),
        ("n_step_return", no_mask, invariant_checks.check_return_padding),
        ("reverse_kl", reversed_kl, invariant_checks.check_kl_gradient),
    ]:
        with monkeypatch.context() as patched:
            patched.setattr(invariant_checks, name, broken)
            with pytest.raises(invariant_checks.CheckFailure):
                check()


@pytest.mark.slow
def test_a_method_that_treats_truncation_as_termination_is_caught(monkeypatch):
    def terminate_at_any_end(
        reward, value, next_value, terminated, ended, discount, gae_lambda, original=actor_critic.gae
    ):
        return original(reward, value, next_value, ended, ended, discount, gae_lambda)

    monkeypatch.setattr(actor_critic, "gae", terminate_at_any_end)
    jax.clear_caches()  # another test may have traced the update of an equal method
    method = dataclasses.replace(installation_checks.probe_cases()[0].method, discount=0.9)
    with pytest.raises(installation_checks.CheckFailure, match="worth 10; detects: a time limit"):
        installation_checks.describe_probe_result(
            method, "constant", train_and_evaluate(method, PROBES["constant"], 20_000)
        )
    jax.clear_caches()  # no other test gets the trace of this one


@pytest.mark.slow
def test_a_loop_that_stores_the_observation_of_the_next_episode_is_caught(monkeypatch):
    class Restarting(eqx.Module):
        """Returns the first observation of the next episode at the end of an episode."""

        inner: object

        @property
        def spec(self):
            return self.inner.spec

        def reset(self, params, key):
            return self.inner.reset(params, key)

        def step(self, state, action, key):
            state, step = self.inner.step(state, action, key)
            first_observation = self.inner.reset((), key)[1].observation
            observation = jnp.where(step.terminated | step.truncated, first_observation, step.observation)
            return state, eqx.tree_at(lambda s: s.observation, step, observation)

    probe = PROBES["coded"]
    monkeypatch.setitem(PROBES, "coded", dataclasses.replace(probe, environment=Restarting(probe.environment)))
    with pytest.raises(invariant_checks.CheckFailure, match="wrong next observation"):
        invariant_checks.check_replay_windows()


def test_a_wrong_value_or_action_is_a_failure():
    known = [KnownValue(jnp.ones(1), 10.0, jnp.int32(1))]
    values, is_correct = jnp.array([[9.9], [9.9]]), jnp.ones((2, 1), bool)
    message = installation_checks.describe_probe_result(PPO(), "constant", probe_result(known, values, is_correct))
    assert "1.00%" in message and PROBES["constant"].detects in message
    with pytest.raises(installation_checks.CheckFailure, match="at 9 and it is worth 10"):
        installation_checks.describe_probe_result(PPO(), "constant", probe_result(known, values - 0.9, is_correct))
    with pytest.raises(installation_checks.CheckFailure, match="acts wrongly at"):
        installation_checks.describe_probe_result(PPO(), "constant", probe_result(known, values, ~is_correct))


def probe_result(known, values, is_correct):
    return ProbeResult(known, *jax.device_get((values, is_correct)))


@pytest.mark.long
def test_checks_beyond_the_time_budget_are_skipped_with_a_message():
    checks = installation_checks.check_installation(TimeBudget(0))
    assert len(checks) >= 14 and {check.passed for check in checks} == {None}
    assert all("skipped" in check.message and check.skipped for check in checks)


def test_all_methods_are_checked():
    from thespis.methods.registry import METHODS

    names = {check.name.split(" on ")[0] for check in installation_checks.check_installation(TimeBudget(0))}
    assert set(METHODS) <= names


@pytest.mark.slow
def test_this_installation_passes():
    checks = doctor(seconds=36_000)  # enough on a busy machine: no check is skipped
    assert not failed_checks(checks), failed_checks(checks)
    assert all(check.passed for check in checks)


@pytest.mark.slow
def test_an_environment_check_reports_the_cost_of_a_step(monkeypatch):
    monkeypatch.undo()
    checks = doctor("gymnasium:CartPole-v1", seconds=600)
    assert not failed_checks(checks), failed_checks(checks)
    assert "of an update of SAC" in next(check.message for check in checks if check.name == "speed")


def test_the_command_counts_skipped_checks_and_says_how_to_run_them(monkeypatch, capsys):
    def checks(env, seconds):
        return [CheckResult("first", True, "fine"), *(skipped_check(name, "no time left") for name in ("b", "c"))]

    monkeypatch.setattr("thespis.cli.doctor.doctor", checks)
    assert command_line(["doctor"]) == 0
    text = capsys.readouterr().out
    assert "2 checks skipped, as the time was over; about enough for all: thespis doctor --seconds 300" in text
    assert "no time left" not in text and "1 of 3 checks passed" in text


def test_the_environment_is_checked_before_the_installation(monkeypatch):
    monkeypatch.setattr(
        "thespis.cli.doctor_checks.installation_checks.check_installation",
        lambda budget, short: [CheckResult("installation", True, "")],
    )
    names = [check.name for check in doctor("no:Such")]
    assert names == ["environment", "installation"]
