r"""Evolution strategies: gradient-free search that moves the mean of a normal distribution towards the best samples.

.. math:: x_i = \mu + \sigma \epsilon_i, \qquad \mu \leftarrow \mu + \frac{\alpha}{n \sigma} \sum_i r_i \epsilon_i

with :math:`r_i` the centered rank of sample ``i``'s reward, and antithetic pairs of :math:`\epsilon_i`. A sample is the
action itself: for one-step environments whose action is a vector of parameters, such as
:class:`~thespis.papers.adversarial_cheap_talk.envs.MetaTrainingEnv`. Observations are ignored, and every step is a
sample.

Source: Salimans et al., 2017.

Differs from common code: the update is Adam's; samples are actions in an environment, not parameters of a policy.
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
from thespis.core.feeds import RolloutFeed
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Number, Report, Transition, View
from thespis.core.spaces import Box
from thespis.data.feeds import Rollouts
from thespis.learners.optim.optimizers import Adam
from thespis.objectives.statistics import centered_ranks
from thespis.runtime.keys import indexed_keys


class ESState(eqx.Module):
    """Training state of ES: mean of the search distribution and optimizer state."""

    mean: Float[Array, "*action"]
    opt_state: PyTree


class ESPolicy(eqx.Module):
    """Search distribution: mean and noise; ``noise_std`` is 0 in exploit mode."""

    mean: Float[Array, "*action"]
    noise_std: Float[Array, ""]


class ES(eqx.Module):
    """Evolution strategies: gradient-free search over the box action of a one-step environment."""

    learning_rate: Number = 0.1
    """Learning rate of the mean."""
    noise_std: Number = 0.3
    """Standard deviation of the samples, in canonical actions."""
    init_std: Number = 1.0
    """Standard deviation of the normal distribution of the initial mean."""
    feed: RolloutFeed = eqx.field(static=True, default=Rollouts(num_steps=1, num_envs=32))
    """Rollouts: num_steps, num_envs; every step is a sample."""

    name: ClassVar[str] = "es"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Evolution Strategies as a Scalable Alternative to RL", "Salimans et al.", 2017, "arXiv:1703.03864"),
    )
    details: ClassVar[tuple[str, ...]] = ("antithetic samples in pairs of environments", "centered ranks", "Adam")

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> ESState:
        """Initialize the mean at random. Raises ``UserError`` unless an action is one box of floats."""
        space = spec.action_space
        if spec.groups or not isinstance(space, Box) or not np.issubdtype(space.dtype, np.floating):
            raise UserError(f"es needs one box of floats as action, and that of {spec.name} is none: use ppo")
        mean = self.init_std * jax.random.normal(key, space.shape)
        return ESState(mean, Adam(self.learning_rate).init(mean))

    def policy(self, state: ESState, mode: Mode) -> ESPolicy:
        """Search distribution; only its mean in exploit mode."""
        return ESPolicy(state.mean, jnp.asarray(0.0 if mode is Mode.EXPLOIT else self.noise_std, "float32"))

    def init_memory(self, policy: ESPolicy, n: int) -> tuple[()]:
        """The memory at an episode's start: nothing is remembered yet."""
        return ()

    def act(self, policy: ESPolicy, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """One sample per row; rows 0 and 1, 2 and 3, ... are mirror images about the mean."""
        rows = jax.tree.leaves(view.observation)[0].shape[0]
        draw = jax.vmap(lambda key: jax.random.normal(key, policy.mean.shape))
        noise = jnp.repeat(draw(indexed_keys(key, (rows + 1) // 2)), 2, axis=0)[:rows]
        mirrored = jax.vmap(jnp.multiply)(1.0 - 2.0 * (jnp.arange(rows) % 2), noise)
        return policy.mean + policy.noise_std * mirrored, memory, {"noise": mirrored}

    def judge(self, state: ESState, episode: Transition) -> Critique:
        """Empty critique: there is no critic."""
        return Critique()

    def update(self, state: ESState, batch: Batch, key: Key[Array, ""]) -> tuple[ESState, Report]:
        """One step of the mean."""
        rewards, noise = batch.steps.reward.reshape(-1), batch.steps.extras["noise"]
        ranks = centered_ranks(rewards)
        gradient = jnp.tensordot(ranks, noise.reshape(len(ranks), *state.mean.shape), 1) / (len(ranks) * self.noise_std)
        step, opt = Adam(self.learning_rate).transform().update(-gradient, state.opt_state, state.mean)
        metrics = {"earned": jnp.mean(rewards), "best": jnp.max(rewards), "climb": jnp.linalg.norm(gradient)}
        return ESState(state.mean + step, opt), Report(metrics)
