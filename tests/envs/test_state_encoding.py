"""States of environments as arrays: what comes back is equal, shared objects stay shared, nothing is imported."""

import collections
import random

import numpy as np
import pytest
import user_envs

from thespis.envs.host.snapshot import explain_unsaved
from thespis.envs.host.state_encoding import EncodingError, decode, encode
from thespis.envs.registry import make_host


def test_values_come_back():
    state = {
        "numbers": [1, 2.5, float("inf"), True, None, "text", b"\x00\xff", 2**80],
        "numpy": (np.float32(0.1), np.arange(6, dtype="int16").reshape(2, 3), np.bool_(True)),
        ("key", 2): {3: frozenset({1, 2})},
        "counts": collections.Counter("aab"),
        "ordered": collections.OrderedDict(b=1, a=2),
        "way": user_envs.Direction.LEFT,
    }
    restored = decode(encode(state))
    arrays = state["numpy"], restored["numpy"]
    assert all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(*arrays, strict=True))
    without = [{name: value for name, value in tree.items() if name != "numpy"} for tree in (state, restored)]
    assert without[0] == without[1] and type(restored["ordered"]) is collections.OrderedDict
    assert all(array.dtype != object for array in encode(state).values())


@pytest.mark.parametrize("make", [lambda: np.random.default_rng(1), lambda: np.random.RandomState(1)])
def test_generators_continue(make):
    rng = make()
    rng.random(3)
    assert np.array_equal(decode(encode(rng)).random(5), rng.random(5))


def test_other_generators_continue():
    for rng in (random.Random(3), np.random.Generator(np.random.MT19937(4))):
        rng.random()
        assert decode(encode(rng)).random() == rng.random()


def test_shared_objects_and_cycles_stay_so():
    inner: list = [1]
    walker = user_envs.Walker(np.random.default_rng(0))
    state = {"a": inner, "b": inner, "walkers": [walker, walker], "rng": walker.rng}
    inner.append(state)
    restored = decode(encode(state))
    assert restored["a"] is restored["b"] and restored["a"][1] is restored
    assert restored["walkers"][0] is restored["walkers"][1] and restored["walkers"][0].rng is restored["rng"]


def test_what_cannot_be_saved_is_named():
    for value in (object(), open, lambda: 0, np.array([None])):
        with pytest.raises(EncodingError, match=r"state\['place'\]\[1\] is a "):
            encode({"place": [0, value]})

    class Local:
        pass

    with pytest.raises(EncodingError, match="a class inside a function"):
        encode(Local())


def test_an_env_whose_state_cannot_be_saved_says_so():
    env = user_envs.Stateful()
    assert explain_unsaved(env) == "" and explain_unsaved(user_envs.Coded()) == ""
    env.engine = object()
    assert "state['state']['engine'] is a builtins.object" in explain_unsaved(env)
    vector_env = make_host(env, 2)
    assert vector_env.get_state() is None
    (warning,) = vector_env.pop_warnings()
    assert "new episodes: state['state']['engine'] is a builtins.object" in warning and not vector_env.pop_warnings()
