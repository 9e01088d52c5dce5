import subprocess
import sys

import gymnasium
import pytest
import user_worlds

from thespis.core.contracts import Environment, HostEnvironment
from thespis.core.errors import UserError
from thespis.envs import registry
from thespis.envs.compiled.gymnax import Gymnax
from thespis.envs.host.compiled import AsHost
from thespis.envs.probes.values import Constant


@pytest.mark.parametrize(
    ("name", "kind", "full"),
    [
        ("CartPole-v1", "compiled", "gymnax:CartPole-v1"),
        ("HalfCheetah-v5", "host", "gymnasium:HalfCheetah-v5"),
        ("gymnasium:CartPole-v1", "host", "gymnasium:CartPole-v1"),
        ("envpool:Ant-v5", "host", "envpool:Ant-v5"),
        ("probe:constant", "compiled", "probe:constant"),
        ("user_worlds:Coded", "host", "user_worlds:Coded"),
        ("thespis.envs.probes.values:Coin", "compiled", "thespis.envs.probes.values:Coin"),
        (user_worlds.Coded, "host", "user_worlds:Coded"),
        (user_worlds.Duck(), "host", "user_worlds:Duck"),
        (Constant(), "compiled", "thespis.envs.probes.values:Constant"),
        (Constant, "compiled", "thespis.envs.probes.values:Constant"),
    ],
)
def test_what_a_name_stands_for(name, kind, full):
    assert registry.resolve(name) == registry.Entry(kind, full)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("CartPol-v1", "gymnax:CartPole-v1"),
        ("gymnax:Pendulun-v1", "gymnax:Pendulum-v1"),
        ("gymnasium:Hoper-v5", "gymnasium:Hopper-v5"),
        ("probe:constnat", "probe:constant"),
        ("zzzzqqq", "thespis list envs"),
        ("no_such_module:World", "no module 'no_such_module'"),
        ("user_worlds:Code", "nearest: Coded"),
    ],
)
def test_an_unknown_name_gets_the_nearest_ones(name, said):
    with pytest.raises(UserError, match=said) as caught:
        registry.resolve(name)
    assert "\n" not in str(caught.value)


def test_every_name_resolves():
    names = registry.names()
    assert len(set(names)) == len(names) > 80
    assert {"probe:maze", "gymnax:Breakout-MinAtar", "gymnasium:Ant-v5", "envpool:Ant-v5"} <= set(names)
    assert [registry.resolve(name).name for name in names] == names


def test_names_are_listed_without_heavy_libraries():
    code = (
        "import sys; from thespis.envs.registry import names, resolve; names(); resolve('Pendulum-v1');"
        "heavy = {'gymnax', 'envpool', 'jaxmarl', 'matplotlib', 'mujoco', 'pettingzoo', 'pgx', 'pyspiel'};"
        "sys.exit(' '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_compiled_worlds_by_name_class_and_object():
    world = registry.compiled("Pendulum-v1")
    assert isinstance(world, Gymnax) and isinstance(world, Environment)
    assert registry.compiled(world) is world
    assert registry.compiled(Constant) == Constant()
    assert registry.compiled("probe:constant-1000").spec.time_limit == 1000
    assert registry.compiled("probe:constant-1000").spec.name == "probe:constant-1000"
    with pytest.raises(UserError, match="host loop"):
        registry.compiled("gymnasium:CartPole-v1")


@pytest.mark.parametrize(
    "given",
    [
        "gymnasium:CartPole-v1",
        "probe:match",
        "user_worlds:Coded",
        user_worlds.Coded,
        user_worlds.Coded(),
        user_worlds.Duck,
        Constant(),
        lambda: gymnasium.make("CartPole-v1"),
        lambda: Constant(),
    ],
)
def test_host_worlds_from_anything(given):
    worlds = registry.host(given, 2)
    assert isinstance(worlds, HostEnvironment) and worlds.n == 2
    assert worlds.start([1, 2]).reward.shape == (2,)
    assert registry.host(worlds, 2) is worlds
    with pytest.raises(UserError, match="2 worlds and the run needs 3"):
        registry.host(worlds, 3)


def test_mistakes_in_making_are_one_line():
    with pytest.raises(UserError, match=r"user_worlds:Unplugged.*OSError: no such device"):
        registry.host("user_worlds:Unplugged", 1)
    with pytest.raises(UserError, match=r"builtins:int.*it lacks observation_space, action_space, reset, step"):
        registry.host(3, 1)
    stuck = user_worlds.Coded()
    stuck.handle = sys.stdout.buffer
    with pytest.raises(UserError, match="cannot be copied for 2 worlds"):
        registry.host(stuck, 2)
    with pytest.raises(UserError, match="Autoreset"):
        registry.host(gymnasium.wrappers.Autoreset(user_worlds.Coded()), 1)
    with pytest.raises(UserError, match="cannot be made"):
        registry.host("gymnasium:nothing/Here-v0", 1)
    with pytest.raises(UserError, match="cannot be made: No module named 'no_such_module'"):
        registry.host("gymnasium:no_such_module:World-v0", 1)


def test_a_class_of_our_own_contract_is_called_with_n():
    class Three(AsHost):
        def __init__(self, n):
            super().__init__(Constant(), n)

    assert registry.host(Three, 3).n == 3
