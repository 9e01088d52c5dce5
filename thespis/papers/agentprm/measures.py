"""Measure of search at test time: what choosing among sampled responses by the process reward model adds."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float

from thespis.core.contracts import Mode
from thespis.envs.registry import make_compiled
from thespis.evaluation.run import Run
from thespis.evidence.measures import Measure, play_in
from thespis.papers.agentprm.method import AgentPRM


def search_gain(num_candidates: int = 16, num_episodes: int = 200) -> Measure:
    """Return of the best of some sampled responses, by the process reward model, minus that of sampled play.

    Both play the same initial states. 0 for methods other than AgentPRM, which have no such model: a trial reads the
    measure of all arms.
    """

    def gains(run: Run) -> Float[np.ndarray, " seed"]:
        env, method = make_compiled(run.config["env"]), run.method
        if not isinstance(method, AgentPRM):
            return np.zeros(len(run.config["seeds"]))

        def returns(count: int) -> Float[np.ndarray, " seed"]:
            search: Any = dataclasses.replace(method, num_candidates=count)
            result = play_in(run, env, num_episodes, Mode.SAMPLE, "search", method=search)
            return result.episode_returns.mean(axis=1)

        return returns(num_candidates) - returns(1)

    return Measure(f"gain in return by the best of {num_candidates} sampled responses", gains, bounds=(-1.0, 1.0))
