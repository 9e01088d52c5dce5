"""What trials with small cooperative games share: what the learnt policies are worth together, exactly."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.readable import Readable
from thespis.core.records import View
from thespis.envs.compiled.stochastic_game import StochasticGame
from thespis.envs.registry import compiled
from thespis.evidence.measures import Measure
from thespis.trained import Run


def share_of_best() -> Measure:
    """Exact return of the learnt policies, as they are drawn from, over that of the best joint choices."""
    return Measure("exact joint return of sampled policies over the best", _shares)


def _shares(run: Run) -> Float[np.ndarray, " seed"]:
    world, method = compiled(run.config["env"]), run.method
    if not isinstance(world, StochasticGame) or not isinstance(method, Readable):
        raise UserError(f"{run.path} was not trained in a stochastic game, or its method tells no probabilities")
    each = jnp.broadcast_to(jnp.eye(world.states)[:, None], (world.states, world.agents, world.states))
    view = View({"agent": each}, alive={"agent": jnp.ones(each.shape[:2], bool)})

    def one(state):
        policy = method.policy(state, Mode.SAMPLE)
        told = method.probabilities(policy, method.begin(policy, world.states), view)["agent"]
        return world.worth(jnp.swapaxes(told, 0, 1)) / world.best()

    return np.asarray(jax.vmap(one)(run.states), np.float64)
