"""Evaluation on held-out data: the metrics that a method reports of batches that it does not learn.

Any method that learns from data says in its reports how well it fits a batch (loss, likelihood, accuracy of
preferences). On held-out data the same numbers are computed by an update whose result is thrown away.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from thespis.core.contracts import Method
from thespis.core.errors import UserError
from thespis.core.records import Batch
from thespis.runtime.keys import seed_key
from thespis.training.data_sources import build_dataset, resolve_spec

_LOG_LIKELIHOOD = "negative_log_likelihood"
_UPDATE_INDEX = 1_000_000_007  # late in any schedule, and a prime: no interval of updates ends there


class HeldOutData:
    """Held-out data of one method: ``data`` is named as for ``--data``; ``env`` is the run's environment, if any.

    Raises ``UserError`` if the method does not learn from data, or the data cannot be read.
    """

    def __init__(self, method: Method, data: str, env: Any = None):
        if not method.feed.reads_datasets:
            raise UserError(f"{method.name} learns from its own rollouts: held-out data is for methods with --data")
        dataset = build_dataset(data, env, method)
        resolve_spec(dataset, env)
        self.notes = tuple(f"held-out data: {note}" for note in dataset.notes)
        """Warnings about the data for the user, one line each."""
        self._method = method
        self._sampler = method.feed.make_sampler(dataset.steps, dataset.group_size)

    def evaluate(self, states: PyTree) -> dict[str, list[float]]:
        """Means over all held-out data by name of metric, one for each seed of ``states`` ``[seed, ...]``.

        Metrics of gradients are left out. Where there is a mean negative log-likelihood, its exponential is added as
        ``perplexity``.
        """
        total, weight_sum = {}, 0.0
        for steps, mask, weight in self._sampler.full_pass():
            metrics = jax.device_get(_report(self._method, states, Batch(steps, mask, (), jnp.int32(_UPDATE_INDEX))))
            for name, values in metrics.items():
                total[name] = total.get(name, 0.0) + weight * np.asarray(values, np.float64)
            weight_sum += weight
        means = {name: (x / weight_sum).tolist() for name, x in sorted(total.items())}
        if _LOG_LIKELIHOOD in means:
            means["perplexity"] = np.exp(means[_LOG_LIKELIHOOD]).tolist()
        return means


@eqx.filter_jit
def _report(method: Method, states: PyTree, batch: Batch) -> dict[str, Any]:
    """The metrics of an update of each seed, one seed after another; without those of gradients, which cost most."""

    def metrics(state: PyTree) -> dict[str, Any]:
        report = method.update(state, batch, seed_key(0))[1]
        return {name: value for name, value in report.metrics.items() if "gradient" not in name}

    return jax.lax.map(metrics, states)
