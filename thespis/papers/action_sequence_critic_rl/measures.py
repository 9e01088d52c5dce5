"""Measures of methods that plan sequences of actions."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float

from thespis.core.contracts import Mode
from thespis.envs import registry
from thespis.evaluation.run import Run
from thespis.evidence.measures import Measure, play_in
from thespis.papers.action_sequence_critic_rl.coarse_to_fine import CoarseToFineMethod


def newest_plan_return(num_episodes: int = 50) -> Measure:
    """Mean greedy return where only the newest plan counts, and earlier ones are not averaged in.

    It is the greedy return where a plan has a single action, and of methods without plans.
    """

    def means(run: Run) -> Float[np.ndarray, " seed"]:
        method: Any = run.method
        if isinstance(method, CoarseToFineMethod):
            method = dataclasses.replace(method, temporal_ensemble_coef=-100.0)
        env = registry.make_compiled(run.config["env"])
        result = play_in(run, env, num_episodes, Mode.EXPLOIT, "newest plan", method=method)
        return result.episode_returns.mean(axis=1)

    return Measure("greedy return by the newest plan alone", means)
