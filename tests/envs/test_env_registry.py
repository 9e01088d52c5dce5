"""Environment registry: which environment a name, class or object resolves to, and one-line errors."""

import subprocess
import sys

import gymnasium
import pytest
import user_envs

from thespis.core.contracts import Environment, HostEnvironment
from thespis.core.errors import UserError
from thespis.envs import registry
from thespis.envs.compiled.gymnax import Gymnax
from thespis.envs.host.wrapper import HostWrapper
from thespis.envs.probes.values import ConstantRewardProbe


@pytest.mark.parametrize(
    ("name", "kind", "full_name"),
    [
        ("CartPole-v1", "compiled", "gymnax:CartPole-v1"),
        ("HalfCheetah-v5", "host", "gymnasium:HalfCheetah-v5"),
        ("gymnasium:CartPole-v1", "host", "gymnasium:CartPole-v1"),
        ("envpool:Ant-v5", "host", "envpool:Ant-v5"),
        ("probe:constant", "compiled", "probe:constant"),
        ("user_envs:Coded", "host", "user_envs:Coded"),
        (
            "thespis.envs.probes.values:RandomTerminationProbe",
            "compiled",
            "thespis.envs.probes.values:RandomTerminationProbe",
        ),
        (user_envs.Coded, "host", "user_envs:Coded"),
        (user_envs.Duck(), "host", "user_envs:Duck"),
        (ConstantRewardProbe(), "compiled", "thespis.envs.probes.values:ConstantRewardProbe"),
        (ConstantRewardProbe, "compiled", "thespis.envs.probes.values:ConstantRewardProbe"),
    ],
)
def test_resolve_env(name, kind, full_name):
    assert registry.resolve_env(name) == registry.EnvEntry(kind, full_name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("CartPol-v1", "gymnax:CartPole-v1"),
        ("gymnax:Pendulun-v1", "gymnax:Pendulum-v1"),
        ("gymnasium:Hoper-v5", "gymnasium:Hopper-v5"),
        ("probe:constnat", "probe:constant"),
        ("zzzzqqq", "thespis list envs"),
        ("no_such_module:World", "no module 'no_such_module'"),
        ("user_envs:Code", "nearest: Coded"),
    ],
)
def test_unknown_name_suggests_the_nearest_ones(name, message):
    with pytest.raises(UserError, match=message) as caught:
        registry.resolve_env(name)
    assert "\n" not in str(caught.value)


def test_every_name_resolves():
    names = registry.list_envs()
    assert len(set(names)) == len(names) > 80
    assert {"probe:maze", "gymnax:Breakout-MinAtar", "gymnasium:Ant-v5", "envpool:Ant-v5"} <= set(names)
    assert [registry.resolve_env(name).name for name in names] == names


@pytest.mark.long
def test_names_are_listed_without_heavy_libraries():
    code = (
        "import sys; from thespis.envs.registry import list_envs, resolve_env; list_envs(); resolve_env('Pendulum-v1');"
        "heavy = {'gymnax', 'envpool', 'jaxmarl', 'matplotlib', 'mujoco', 'pettingzoo', 'pgx', 'pyspiel'};"
        "sys.exit(' '.join(heavy & set(sys.modules)) or 0)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


def test_make_compiled_from_name_class_and_object():
    env = registry.make_compiled("Pendulum-v1")
    assert isinstance(env, Gymnax) and isinstance(env, Environment)
    assert registry.make_compiled(env) is env
    assert registry.make_compiled(ConstantRewardProbe) == ConstantRewardProbe()
    assert registry.make_compiled("probe:constant-1000").spec.time_limit == 1000
    assert registry.make_compiled("probe:constant-1000").spec.name == "probe:constant-1000"
    with pytest.raises(UserError, match="host loop"):
        registry.make_compiled("gymnasium:CartPole-v1")


@pytest.mark.parametrize(
    "source",
    [
        "gymnasium:CartPole-v1",
        "probe:match",
        "user_envs:Coded",
        user_envs.Coded,
        user_envs.Coded(),
        user_envs.Duck,
        ConstantRewardProbe(),
        lambda: gymnasium.make("CartPole-v1"),
        lambda: ConstantRewardProbe(),
    ],
)
def test_make_host_from_names_classes_objects_and_functions(source):
    vector_env = registry.make_host(source, 2)
    assert isinstance(vector_env, HostEnvironment) and vector_env.num_envs == 2
    assert vector_env.reset([1, 2]).reward.shape == (2,)
    assert registry.make_host(vector_env, 2) is vector_env
    with pytest.raises(UserError, match="2 sub-environments and the run needs 3"):
        registry.make_host(vector_env, 3)


def test_construction_errors_are_one_line():
    with pytest.raises(UserError, match=r"user_envs:Unplugged.*OSError: no such device"):
        registry.make_host("user_envs:Unplugged", 1)
    with pytest.raises(UserError, match=r"builtins:int.*it lacks observation_space, action_space, reset, step"):
        registry.make_host(3, 1)
    env = user_envs.Coded()
    env.handle = sys.stdout.buffer
    with pytest.raises(UserError, match="cannot be copied for 2 environments"):
        registry.make_host(env, 2)
    with pytest.raises(UserError, match="Autoreset"):
        registry.make_host(gymnasium.wrappers.Autoreset(user_envs.Coded()), 1)
    with pytest.raises(UserError, match="cannot be made"):
        registry.make_host("gymnasium:nothing/Here-v0", 1)
    with pytest.raises(UserError, match="cannot be made: No module named 'no_such_module'"):
        registry.make_host("gymnasium:no_such_module:World-v0", 1)


def test_a_host_environment_class_is_called_with_num_envs():
    class ConstantRewardVector(HostWrapper):
        def __init__(self, num_envs):
            super().__init__(ConstantRewardProbe(), num_envs)

    assert registry.make_host(ConstantRewardVector, 3).num_envs == 3
