"""Bench of goals in text: the share of training episodes without a reward."""

from __future__ import annotations

from unittest.mock import Mock

import numpy as np
import pytest

from thespis.evaluation.run import Run
from thespis.evidence.benches.text_goals import unrewarded_share


def test_share_of_training_episodes_without_a_reward():
    table = {"step": [16, 16, 32, 32], "seed": [0, 1, 0, 1], "episode_return": [0.0, 0.25, 0.5, 0.75]}
    metrics = {name: np.array(column) for name, column in table.items()}
    run = Mock(spec=Run, metrics=lambda: metrics, config={"seeds": [0, 1]})
    assert unrewarded_share().compute(run).tolist() == pytest.approx([0.75, 0.5])
