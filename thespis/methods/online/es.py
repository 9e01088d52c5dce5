r"""Evolution strategies: draw around a mean, and move it towards the draws that did best.

.. math:: x_i = \mu + \sigma \epsilon_i, \qquad \mu \leftarrow \mu + \frac{\alpha}{n \sigma} \sum_i r_i \epsilon_i

with :math:`r_i` the centred rank of what draw ``i`` earned, and every :math:`\epsilon_i` drawn with its mirror image.
The draw is the action itself: for worlds of one step whose action is a vector of parameters, such as
:class:`~thespis.envs.compiled.trainings.Trainings`. What is seen is not looked at, and every step is a trial.

Source: Salimans et al., 2017.
Differs from common code: the step is Adam's; draws are actions of a world, not parameters of a policy.
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.feeds import Rollouts
from thespis.core.keys import per_index
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Report, Transition, View
from thespis.core.spaces import Box
from thespis.learners.gradient import Adam, Number
from thespis.objectives.normalise import centred_ranks


class ESState(eqx.Module):
    """The mean of all draws, and the optimiser's state."""

    mean: Float[Array, "*action"]
    opt: PyTree


class Draws(eqx.Module):
    """What is drawn around, and how far; ``deviation`` is 0 when it exploits."""

    mean: Float[Array, "*action"]
    deviation: Float[Array, ""]


class ES(eqx.Module):
    """Evolution strategies over the action of a world of one step."""

    learning_rate: Number = 0.1
    """Step size of the mean."""
    deviation: Number = 0.3
    """Standard deviation of the draws, in canonical actions."""
    spread: Number = 1.0
    """Standard deviation of the normal distribution that the first mean is drawn from."""
    feed: Rollouts = eqx.field(static=True, default=Rollouts(length=1, envs=32))
    """Rollouts: length, envs; every step is a draw."""

    name: ClassVar[str] = "es"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Evolution Strategies as a Scalable Alternative to RL", "Salimans et al.", 2017, "arXiv:1703.03864"),
    )
    details: ClassVar[tuple[str, ...]] = ("draws are mirrored in pairs of environments", "centred ranks", "Adam")

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> ESState:
        """A mean by chance. Raises ``UserError`` unless an action is one box of floats."""
        space = spec.action
        if spec.groups or not isinstance(space, Box) or not np.issubdtype(space.dtype, np.floating):
            raise UserError(f"es searches one box of numbers, and the action of {spec.name} is none: use ppo")
        mean = self.spread * jax.random.normal(key, space.shape)
        return ESState(mean, Adam(self.learning_rate).init(mean))

    def policy(self, state: ESState, mode: Mode) -> Draws:
        """The mean alone where it exploits."""
        return Draws(state.mean, jnp.asarray(0.0 if mode is Mode.EXPLOIT else self.deviation, "float32"))

    def begin(self, policy: Draws, n: int) -> tuple[()]:
        """No memory."""
        return ()

    def act(self, policy: Draws, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """A draw for every row; rows 0 and 1, 2 and 3 ... lie on either side of the mean."""
        rows = jax.tree.leaves(view.observation)[0].shape[0]
        draw = jax.vmap(lambda key: jax.random.normal(key, policy.mean.shape))
        noise = jnp.repeat(draw(per_index(key, (rows + 1) // 2)), 2, axis=0)[:rows]
        mirrored = jax.vmap(jnp.multiply)(1.0 - 2.0 * (jnp.arange(rows) % 2), noise)
        return policy.mean + policy.deviation * mirrored, memory, {"noise": mirrored}

    def judge(self, state: ESState, episode: Transition) -> Critique:
        """No critic, no opinion."""
        return Critique()

    def update(self, state: ESState, batch: Batch, key: Key[Array, ""]) -> tuple[ESState, Report]:
        """One step of the mean."""
        earned, noise = batch.steps.reward.reshape(-1), batch.steps.extras["noise"]
        ranks = centred_ranks(earned)
        climb = jnp.tensordot(ranks, noise.reshape(len(ranks), *state.mean.shape), 1) / (len(ranks) * self.deviation)
        step, opt = Adam(self.learning_rate).transform().update(-climb, state.opt, state.mean)
        metrics = {"earned": jnp.mean(earned), "best": jnp.max(earned), "climb": jnp.linalg.norm(climb)}
        return ESState(state.mean + step, opt), Report(metrics)
