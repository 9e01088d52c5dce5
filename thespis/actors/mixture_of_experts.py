"""Mixtures of squashed normals, and their actor objective for action values.

Samples of each expert are reparameterised. The choice of an expert is not, so it needs a gradient of its own.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from thespis.actors.continuous_heads import SoftActorHead
from thespis.actors.distributions import Scalar, SquashedNormal
from thespis.actors.policy_heads import require_bounded
from thespis.core.errors import UserError
from thespis.core.spaces import Box, Space


class SquashedNormalMixture(eqx.Module):
    """Mixture of squashed normals with weights ``softmax(logits)``; a density on the open box ``(-1, 1)``."""

    logits: Float[Array, " experts"]
    mean: Float[Array, "experts *shape"]
    log_std: Float[Array, "experts *shape"]
    own_log_probs: bool = eqx.field(static=True, default=False)
    """Whether samples of all experts have log-densities of their own expert, instead of the mixture's."""

    @property
    def experts(self) -> SquashedNormal:
        """All experts, stacked along the first axis."""
        return SquashedNormal(self.mean, self.log_std)

    @property
    def weights(self) -> Float[Array, " experts"]:
        """Probability of each expert."""
        return jax.nn.softmax(self.logits)

    def sample(self, key: Key[Array, ""]) -> Float[Array, "*shape"]:
        """One sample from the distribution."""
        return self.sample_with_log_prob(key)[0]

    def sample_with_log_prob(self, key: Key[Array, ""]) -> tuple[Float[Array, "*shape"], Scalar]:
        """One sample and its log-density; the gradient of the sample is that of its expert alone."""
        which_key, key = jax.random.split(key)
        expert = self._expert(jax.random.categorical(which_key, self.logits))
        u, _ = expert.sample_pre_tanh(key)
        return jnp.tanh(u), jnp.sum(self._log_probs_pre_tanh(u))

    def mode(self) -> Float[Array, "*shape"]:
        """The squashed mean of the most probable expert."""
        return self._expert(jnp.argmax(self.logits)).mode()

    def log_prob(self, action: Float[Array, "*shape"]) -> Scalar:
        """Log-density of an action; actions at the bounds are moved inside by about 1e-6."""
        per_expert = jax.vmap(lambda expert: expert.log_prob(action))(self.experts)
        return jax.nn.logsumexp(jax.nn.log_softmax(self.logits) + per_expert)

    def action_samples(
        self, key: Key[Array, ""]
    ) -> tuple[Float[Array, "experts *shape"], Float[Array, " experts"], Float[Array, " experts"]]:
        """One reparameterised sample per expert, the experts' weights, and the samples' log-densities."""
        actions, weights, log_probs = self.action_samples_per_dim(key)
        return actions, weights, jnp.sum(log_probs, axis=range(1, log_probs.ndim))

    def action_samples_per_dim(
        self, key: Key[Array, ""]
    ) -> tuple[Float[Array, "experts *shape"], Float[Array, " experts"], Float[Array, "experts *shape"]]:
        """As :meth:`action_samples`, with the log-density of each coordinate given those before it."""
        u = jax.vmap(lambda expert, key: expert.sample_pre_tanh(key)[0])(
            self.experts, jax.random.split(key, self.logits.size)
        )
        if self.own_log_probs:
            log_probs = jax.vmap(lambda expert, u: expert.log_probs_pre_tanh(u))(self.experts, u)
        else:
            log_probs = jax.vmap(self._log_probs_pre_tanh)(u)
        return jnp.tanh(u), self.weights, log_probs

    def _expert(self, which: Array) -> SquashedNormal:
        return SquashedNormal(self.mean[which], self.log_std[which])

    def _log_probs_pre_tanh(self, u: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        per_expert = jax.vmap(lambda expert: expert.log_probs_pre_tanh(u))(self.experts).reshape(self.logits.size, -1)
        cumulative = jax.nn.logsumexp(jax.nn.log_softmax(self.logits)[:, None] + jnp.cumsum(per_expert, axis=1), axis=0)
        return jnp.diff(cumulative, prepend=0.0).reshape(u.shape)


@dataclasses.dataclass(frozen=True)
class MixtureOfExperts(SoftActorHead):
    r"""Probabilistic mixture of experts (Ren et al., 2021): every expert is trained, the router learns which is best.

    .. math:: \frac1K \sum_i \left[ Q(a_i) - (w_i - 1[i = e])^2 \right] - \alpha \sum_i \bar w_i \log \pi(a_i)

    is the objective for one view with ``routing="best"``, with one sample of each of :math:`K` experts, of which
    :math:`e` has the highest value: weights :math:`w` follow how often an expert is the best, as in a co-author's code
    for PPO. :math:`\bar w` are the weights held constant. (If all samples had equal weight in the entropy term, too,
    the objective would have no maximum: experts would move away from each other without end.) ``"exact"`` weights the
    values by :math:`w` as well, which is the true gradient. ``"winner"`` trains only the expert with the highest value,

    .. math:: Q(a_e) - \alpha \log \pi_e(a_e) - \frac1K \sum_i (w_i - 1[i = e])^2

    with its own density in place of the mixture's, as in a co-author's code for SAC.
    """

    num_experts: int = 4
    """Number of experts."""
    routing: Literal["best", "exact", "winner"] = "best"
    """How the expert weights learn: toward the expert with the highest value, or by the exact gradient; "winner" also
    trains the expert with the highest value only."""
    log_std_min: float = -20.0
    log_std_max: float = 2.0

    def num_outputs(self, space: Box) -> int:
        """Number of network outputs needed for ``space``."""
        require_bounded(space)
        return self.num_experts * (1 + 2 * math.prod(space.shape))

    def init_free_params(self, space: Box, num_features: int) -> Array:
        """Parameters outside the network: none."""
        return jnp.zeros(0)

    def distribution(self, space: Box, outputs: Array, free_params: Array, features: Array) -> SquashedNormalMixture:
        """The mixture from the network's outputs."""
        mean, log_std = jnp.split(outputs[self.num_experts :].reshape(self.num_experts, 2, *space.shape), 2, axis=1)
        log_std = jnp.clip(log_std, self.log_std_min, self.log_std_max)
        return SquashedNormalMixture(outputs[: self.num_experts], mean[:, 0], log_std[:, 0], self.routing == "winner")

    def check_space(self, space: Space) -> None:
        """Raise ``UserError`` unless the action space is one box."""
        if not isinstance(space, Box):
            raise UserError(f"experts act in a box of actions, not in {space}: use policy_head=SquashedGaussian")

    def actor_objective(
        self,
        weights: Float[Array, " experts"],
        q_values: Float[Array, " experts"],
        entropy_bonus: Float[Array, " experts"],
    ) -> Scalar:
        """The actor's objective in one view, to be maximised, from each sample's weight, value and entropy bonus."""
        if self.routing == "exact":
            return jnp.sum(weights * (q_values + entropy_bonus))
        best = jax.nn.one_hot(jnp.argmax(q_values), self.num_experts)
        if self.routing == "winner":
            return jnp.sum(best * (q_values + entropy_bonus)) - jnp.mean(jnp.square(weights - best))
        entropy = jnp.sum(jax.lax.stop_gradient(weights) * entropy_bonus)
        return jnp.mean(q_values - jnp.square(weights - best)) + entropy
