"""The doctor against worlds with exactly one fault each, and against healthy ones of every kind."""

import dataclasses

import equinox as eqx
import faults
import gymnasium
import jax
import jax.numpy as jnp
import pytest

from thespis.cli.doctor import doctor
from thespis.cli.doctor_checks import installation, laws, world
from thespis.cli.doctor_checks.check import Clock, failed
from thespis.cli.doctor_checks.compiling import compiled_quickly
from thespis.cli.doctor_checks.learning import Learnt, learn
from thespis.core.records import TimeStep
from thespis.envs.probes.probe import Known
from thespis.envs.probes.registry import PROBES
from thespis.envs.probes.values import Constant
from thespis.learners import actor_critic
from thespis.methods.online.ppo import PPO

SLOW = pytest.mark.slow
FAULTS = [
    pytest.param(name, cls, marks=[SLOW] if cls is faults.NeverEnds else [])
    for name, classes in faults.FAULTS.items()
    for cls in classes
]
HEALTHY = [
    faults.Healthy, faults.HealthyDict, faults.FixedHorizon, "gymnasium:CartPole-v1",
    *(pytest.param(f"gymnasium:{name}", marks=SLOW) for name in (
        "Pendulum-v1", "HalfCheetah-v5", "MountainCar-v0", "Acrobot-v1", "Ant-v5", "Blackjack-v1",
        "FrozenLake-v1", "Taxi-v4")),
]  # fmt: skip
COMPILED = ["probe:coin"] + [
    pytest.param(name, marks=SLOW)
    for name in ("gymnax:CartPole-v1", "gymnax:Pendulum-v1", "gymnax:Catch-bsuite", "gymnax:Breakout-MinAtar",
                 "probe:hybrid", "probe:masked", "probe:picture", "probe:maze", "envpool:CartPole-v1")
]  # fmt: skip


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    """Compiling an update of SAC to compare its speed takes longer than all else; one slow test does it.

    And a world's own speed is measured in the fiftieth part of the time.
    """
    monkeypatch.setattr(world, "_sac_update", lambda spec, left: None)
    for module, name in ((world.raw, "steps_per_second"), (world, "host_speed")):
        measure = getattr(module, name)
        monkeypatch.setattr(module, name, lambda env, seconds, measure=measure: measure(env, seconds / 50))
    with compiled_quickly():
        yield


def look(env, seconds=60.0):
    return world.check_world(env, Clock(seconds))


@pytest.mark.parametrize(("name", "cls"), FAULTS, ids=lambda x: x if isinstance(x, str) else x.__name__)
def test_the_fault_is_found_and_named_first(name, cls):
    bad = failed(look(cls))
    assert bad, f"{cls.__name__} passed"
    assert bad[0].name == name and len(bad[0].message) > 30 and "\n" not in bad[0].message


def test_there_are_enough_faults():
    assert len(FAULTS) >= 10 and len({fault.values[0] for fault in FAULTS}) == len(FAULTS)


@pytest.mark.parametrize("env", HEALTHY, ids=str)
def test_a_healthy_world_passes(env):
    checks = look(env)
    assert not failed(checks), failed(checks)
    assert {"determinism", "episode end", "adapter", "speed"} <= {check.name for check in checks}


@pytest.mark.parametrize("env", COMPILED)
def test_a_healthy_compiled_world_passes(env):
    checks = look(env)
    assert not failed(checks), failed(checks)
    assert {"worlds", "seed", "reward scale", "speed"} <= {check.name for check in checks}


def test_an_object_is_checked_and_not_closed():
    env = faults.Healthy()
    env.close = lambda: pytest.fail("closed")
    assert not failed(look(env))


def test_a_vector_environment_is_checked():
    env = gymnasium.vector.SyncVectorEnv([faults.Healthy] * 3)
    checks = look(env)
    assert not failed(checks) and any(check.name == "worlds" and check.passed for check in checks)
    env.close()


class Faulty(eqx.Module):
    """A compiled world whose answers are changed by ``change(step)``."""

    inner: Constant
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
def test_faults_of_compiled_worlds_are_found():
    def first(change):
        return failed(look(Faulty(Constant(40), change)))[0].name

    assert first(lambda s: eqx.tree_at(lambda t: t.observation, s, s.observation + 5)) == "contract"
    assert first(lambda s: eqx.tree_at(lambda t: t.reward, s, s.reward / 0)) == "contract"
    assert first(lambda s: TimeStep(s.observation, s.reward, s.truncated, s.terminated)) == "time limit"
    assert first(lambda s: eqx.tree_at(lambda t: t.reward, s, 1e6 * s.reward)) == "reward scale"


def test_a_name_that_nobody_knows_is_one_line():
    (check,) = look("CartPol-v1")
    assert check.passed is False and "CartPole-v1" in check.message


@pytest.mark.parametrize(
    "law", [laws.episodes_apart, laws.one_advantage_for_any_split, laws.padding_counts_nothing,
            laws.divergence_has_its_gradient]
)  # fmt: skip
def test_the_formulas_hold(law):
    assert law()


def test_replay_holds():
    assert "1,024 windows" in laws.replay_keeps_episodes_whole()


@pytest.mark.slow
def test_seeds_hold():
    """32 of them; quicker, with two: ``tests/loops/test_addresses.py``."""
    assert "512" not in laws.seeds_share_no_stream()


def test_formulas_that_leak_are_caught(monkeypatch):
    """Each law, with the mistake it is there for."""

    def one_done_flag(reward, value, next_value, terminated, ended, discount, trace, right=laws.gae):
        return right(reward, value, next_value, ended, ended, discount, trace)

    def uncut(reward, value, next_value, terminated, ended, discount, trace, right=laws.gae):
        return right(reward, value, next_value, terminated, jnp.zeros_like(ended), discount, trace)

    def all_counts(reward, terminated, mask, discount, right=laws.n_step):
        return right(reward, terminated, jnp.ones_like(mask), discount)

    def wrong_way(log_prob, reference, behaviour):
        return jnp.expm1(reference - log_prob) - (reference - log_prob)

    for name, wrong, law in [
        ("gae", one_done_flag, laws.episodes_apart),
        ("gae", uncut, laws.episodes_apart),
        ("n_step", all_counts, laws.padding_counts_nothing),
        ("reverse_kl", wrong_way, laws.divergence_has_its_gradient),
    ]:
        with monkeypatch.context() as patch:
            patch.setattr(laws, name, wrong)
            with pytest.raises(laws.Failed):
                law()


@pytest.mark.slow
def test_a_method_that_takes_a_time_limit_for_an_end_is_caught(monkeypatch):
    def one_done_flag(reward, value, next_value, terminated, ended, discount, trace, right=actor_critic.gae):
        return right(reward, value, next_value, ended, ended, discount, trace)

    monkeypatch.setattr(actor_critic, "gae", one_done_flag)
    method = dataclasses.replace(installation.trials()[0].method, discount=0.9)
    with pytest.raises(installation.Failed, match="worth 10; stands against: a time limit"):
        installation.verdict(method, "constant", learn(method, PROBES["constant"], 20_000))


@pytest.mark.slow
def test_a_loop_that_stores_the_next_episodes_observation_is_caught(monkeypatch):
    class Restarting(eqx.Module):
        inner: object

        @property
        def spec(self):
            return self.inner.spec

        def reset(self, params, key):
            return self.inner.reset(params, key)

        def step(self, state, action, key):
            state, step = self.inner.step(state, action, key)
            fresh = self.inner.reset((), key)[1].observation
            shown = jnp.where(step.terminated | step.truncated, fresh, step.observation)
            return state, eqx.tree_at(lambda s: s.observation, step, shown)

    probe = PROBES["coded"]
    monkeypatch.setitem(PROBES, "coded", dataclasses.replace(probe, environment=Restarting(probe.environment)))
    with pytest.raises(laws.Failed, match="wrong next observation"):
        laws.replay_keeps_episodes_whole()


def test_a_wrong_value_or_action_is_a_failure():
    known = [Known(jnp.ones(1), 10.0, jnp.int32(1))]
    values, right = jnp.array([[9.9], [9.9]]), jnp.ones((2, 1), bool)
    said = installation.verdict(PPO(), "constant", _learnt(known, values, right))
    assert "1.00%" in said and PROBES["constant"].catches in said
    with pytest.raises(installation.Failed, match="at 9 and it is worth 10"):
        installation.verdict(PPO(), "constant", _learnt(known, values - 0.9, right))
    with pytest.raises(installation.Failed, match="the wrong thing"):
        installation.verdict(PPO(), "constant", _learnt(known, values, ~right))


def _learnt(known, values, right):
    return Learnt(known, *jax.device_get((values, right)))


def test_what_does_not_fit_is_skipped_and_says_so():
    checks = installation.check_installation(Clock(0))
    assert len(checks) >= 14 and {check.passed for check in checks} == {None}
    assert all("skipped" in check.message for check in checks)


def test_all_methods_are_tried():
    from thespis.methods.registry import NAMES

    names = {check.name.split(" on ")[0] for check in installation.check_installation(Clock(0))}
    assert set(NAMES) <= names


@pytest.mark.slow
def test_the_doctor_finds_this_installation_sound():
    checks = doctor(seconds=600)
    assert not failed(checks), failed(checks)
    assert all(check.passed for check in checks)


@pytest.mark.slow
def test_the_doctor_checks_a_world_and_says_what_a_step_costs(monkeypatch):
    monkeypatch.undo()
    checks = doctor("gymnasium:CartPole-v1", seconds=600)
    assert not failed(checks), failed(checks)
    assert "of an update of SAC" in checks[-1].message
