"""Warning of critics whose values left the range of possible returns."""

import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.records import Critique, Transition, View
from thespis.evaluation.score import calibration_pairs
from thespis.evaluation.value_range import ValueWatch, describe_value_range
from thespis.methods.online.ppo import PPO


def pairs(value, low, high, discount=0.9):
    return {"predicted": [value] * 4, "discount": discount, "reward_range": [low, high]}


@pytest.mark.parametrize(
    ("value", "low", "high", "returns", "is_wrong"),
    [
        (380.0, -3.0, -0.2, -25.0, True),  # no reward is positive
        (2.0, -3.0, -0.2, -25.0, False),  # a fresh critic
        (-29.0, -3.0, -0.2, -25.0, False),
        (-100.0, -3.0, -0.2, -25.0, True),  # 30 is possible
        (25.0, 0.0, 1.0, 1.0, False),  # overestimation of less than three times 10
        (40.0, 0.0, 1.0, 1.0, True),
        (-3.0, 0.0, 1.0, 1.0, True),
        (3.0, 0.0, 0.0, 0.0, False),  # no reward was observed
        (30.0, 0.0, 0.0, 100.0, False),  # but returns were
        (float("nan"), 0.0, 1.0, 1.0, False),
    ],
)
def test_values_out_of_range(value, low, high, returns, is_wrong):
    text = describe_value_range(pairs(value, low, high), [[returns, returns]])
    assert bool(text) == is_wrong
    assert not is_wrong or "the critic diverges: try a smaller discount" in text


def test_the_warning_names_values_and_possible_returns_once():
    watch = ValueWatch()
    text = watch.check(pairs(380.0, -3.0, -0.2, 0.99), [[-25.0]])
    assert "they are 380 on average" in text and "from −3 to −0.2" in text and "from −300 to 0 at" in text
    assert watch.check(pairs(380.0, -3.0, -0.2, 0.99), [[-25.0]]) == ""
    assert describe_value_range(None, [[1.0]]) == "" and describe_value_range(pairs(30.0, 0, 1, 1.0), [[15.0]]) == ""


def test_pairs_hold_the_range_of_rewards_of_any_method_that_judges():
    class Judge(PPO):
        def judge(self, state, episode):
            return Critique(value=state * episode.reward, discount=jnp.float32(0.5))

    reward, flags = np.array([1.0, -2.0, 4.0], "float32"), np.array([False, False, True])
    steps = Transition(View(reward), reward, reward, flags, ~flags & False, View(reward), ~flags)
    result = calibration_pairs(Judge(), jnp.array([3.0]), [[steps]])
    assert result["reward_range"] == [-2, 4] and result["predicted"] == [3, -6, 12] and result["discount"] == 0.5
    assert result["realised"] == [1.0, 0.0, 4.0]
