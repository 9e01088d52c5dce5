"""The bench of replay ratios: the fall of the share of active units, against shares set by hand."""

from unittest.mock import Mock

import numpy as np
import pytest

from thespis.evaluation.run import Run
from thespis.evidence.benches.replay_ratios import BASELINE, LOW, STEPS, lost_activity


def test_lost_activity_is_the_fall_from_the_highest_part_to_the_last():
    """Two seeds in turns, with two rows before the first update; one seed falls from 0.6 to 0.35, one only rises."""
    falling, rising = [0.4, 0.4, 0.5, 0.7, 0.4, 0.3], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    shares = np.concatenate([np.full((2, 2), np.nan), np.stack([falling, rising], axis=1)])
    table = {"seed": np.tile([4, 9], 8), "active_units": shares.ravel()}
    run = Mock(spec=Run, config={"seeds": [4, 9]}, metrics=lambda: table)
    np.testing.assert_allclose(lost_activity(num_parts=3).compute(run), [0.6 - 0.35, 0.0], atol=1e-12)


@pytest.mark.parametrize(("method", "num_updates"), [(LOW, 1), (BASELINE, 4)])
def test_exploration_noise_decays_over_half_of_the_steps(method, num_updates):
    """After half of the steps, whatever the ratio, the feed has offered as many updates as the noise takes."""
    assert method.feed.num_updates == num_updates
    assert method.noise_decay_updates == STEPS / 2 / method.feed.update_interval * num_updates
