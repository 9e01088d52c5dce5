"""Space conversion: Gymnasium spaces against their Thespis equivalents."""

import gymnasium.spaces as g
import numpy as np
import pytest

from thespis.core.errors import UserError
from thespis.core.spaces import Box, CompositeSpace, Discrete, MultiDiscrete, dict_space, tuple_space
from thespis.envs.space_conversion import from_gymnasium


@pytest.mark.parametrize(
    ("gymnasium_space", "expected"),
    [
        (g.Box(-1.0, 2.0, (3,), np.float64), Box((3,), -1.0, 2.0)),
        (
            g.Box(np.array([-1, -np.inf], "f4"), np.array([1, 5], "f4")),
            Box((2,), (-1.0, -np.inf), (1.0, 5.0)),
        ),
        (g.Box(-np.finfo("float32").max, np.finfo("float32").max, (2,)), Box((2,))),
        (g.Box(0, 255, (8, 8, 3), np.uint8), Box((8, 8, 3), 0.0, 255.0, "uint8")),
        (g.Box(-5, 5, (2,), np.int64), Box((2,), -5.0, 5.0, "int32")),
        (g.Discrete(4, start=-2), Discrete(4)),
        (g.MultiDiscrete([[2, 3], [4, 5]]), MultiDiscrete((2, 3, 4, 5))),
        (g.MultiBinary([2, 2]), MultiDiscrete((2, 2, 2, 2))),
        (g.Tuple((g.Discrete(2), g.Box(0, 1, ()))), tuple_space(Discrete(2), Box((), 0.0, 1.0))),
        (
            g.Dict({"z": g.Discrete(2), "a": g.Dict({"b": g.Discrete(3)})}),
            dict_space(z=Discrete(2), a=dict_space(b=Discrete(3))),
        ),
    ],
)
def test_every_supported_space(gymnasium_space, expected):
    assert from_gymnasium(gymnasium_space) == expected
    assert not isinstance(expected, CompositeSpace) or [name for name, _ in expected.spaces] == sorted(
        n for n, _ in expected.spaces
    )


def test_unsupported_space_error_names_it():
    with pytest.raises(UserError, match=r"Text.*use Box, Discrete"):
        from_gymnasium(g.Dict({"words": g.Text(5)}))
