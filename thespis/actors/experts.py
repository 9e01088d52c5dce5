"""Mixtures of squashed normals, and how they climb action values.

The draw of an expert is reparameterised, the choice of an expert is not, so it needs a gradient of its own.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from thespis.actors.distributions import Scalar, SquashedNormal
from thespis.actors.heads import require_bounded
from thespis.core.errors import UserError
from thespis.core.spaces import Box, Space


class SquashedMixture(eqx.Module):
    """One of several squashed normals, drawn by the softmax of ``logits``; a density on the open box ``(-1, 1)``."""

    logits: Float[Array, " experts"]
    mean: Float[Array, "experts *shape"]
    log_std: Float[Array, "experts *shape"]

    @property
    def experts(self) -> SquashedNormal:
        """All of them, stacked."""
        return SquashedNormal(self.mean, self.log_std)

    @property
    def weights(self) -> Float[Array, " experts"]:
        """Chance of each expert."""
        return jax.nn.softmax(self.logits)

    def sample(self, key: Key[Array, ""]) -> Float[Array, "*shape"]:
        """One draw."""
        return self.sample_with_log_prob(key)[0]

    def sample_with_log_prob(self, key: Key[Array, ""]) -> tuple[Float[Array, "*shape"], Scalar]:
        """One draw and its log-density; the gradient of the draw is that of its expert alone."""
        which_key, key = jax.random.split(key)
        expert = self._expert(jax.random.categorical(which_key, self.logits))
        u, _ = expert.before(key)
        return jnp.tanh(u), jnp.sum(self._log_probs_before(u))

    def mode(self) -> Float[Array, "*shape"]:
        """The squashed mean of the likeliest expert."""
        return self._expert(jnp.argmax(self.logits)).mode()

    def log_prob(self, action: Float[Array, "*shape"]) -> Scalar:
        """Log-density of an action; those at the bounds are moved inside by one float32 step."""
        each = jax.vmap(lambda expert: expert.log_prob(action))(self.experts)
        return jax.nn.logsumexp(jax.nn.log_softmax(self.logits) + each)

    def candidates(
        self, key: Key[Array, ""]
    ) -> tuple[Float[Array, "experts *shape"], Float[Array, " experts"], Float[Array, " experts"]]:
        """One reparameterised draw of every expert, its chance, and the draw's log-density under the mixture."""
        actions, weights, log_probs = self.candidates_in_parts(key)
        return actions, weights, jnp.sum(log_probs, axis=range(1, log_probs.ndim))

    def candidates_in_parts(
        self, key: Key[Array, ""]
    ) -> tuple[Float[Array, "experts *shape"], Float[Array, " experts"], Float[Array, "experts *shape"]]:
        """The same, with the log-density of each number given those before it."""
        u = jax.vmap(lambda expert, key: expert.before(key)[0])(self.experts, jax.random.split(key, self.logits.size))
        return jnp.tanh(u), self.weights, jax.vmap(self._log_probs_before)(u)

    def _expert(self, which: Array) -> SquashedNormal:
        return SquashedNormal(self.mean[which], self.log_std[which])

    def _log_probs_before(self, u: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        each = jax.vmap(lambda expert: expert.log_probs_before(u))(self.experts).reshape(self.logits.size, -1)
        upto = jax.nn.logsumexp(jax.nn.log_softmax(self.logits)[:, None] + jnp.cumsum(each, axis=1), axis=0)
        return jnp.diff(upto, prepend=0.0).reshape(u.shape)


@dataclasses.dataclass(frozen=True)
class Experts:
    r"""Probabilistic mixture of experts (Ren et al., 2021): every expert climbs on its own, the best is routed to.

    .. math:: \frac1K \sum_i \left[ Q(a_i) - (w_i - 1[i = e])^2 \right] - \alpha \sum_i \bar w_i \log \pi(a_i)

    is a view's objective with ``routing="best"``, for one draw of each of :math:`K` experts, of which :math:`e` has the
    highest value: chances :math:`w` follow how often an expert is the best, as in a co-author's code for PPO. Barred,
    they are held constant. (Were all draws to count alike for entropy, too, it would have no largest value: experts
    would flee from each other.) ``"exact"`` weighs values by chances as well, which is the true gradient.
    """

    count: int = 4
    """How many."""
    routing: Literal["best", "exact"] = "best"
    """By what the choice of an expert learns."""
    lowest_log_std: float = -20.0
    highest_log_std: float = 2.0

    def width(self, space: Box) -> int:
        """Outputs needed of the net."""
        require_bounded(space)
        return self.count * (1 + 2 * math.prod(space.shape))

    def free(self, space: Box) -> Array:
        """Parameters beside the net: none."""
        return jnp.zeros(0)

    def build(self, space: Box, outputs: Array, free: Array) -> SquashedMixture:
        """The distribution."""
        mean, log_std = jnp.split(outputs[self.count :].reshape(self.count, 2, *space.shape), 2, axis=1)
        log_std = jnp.clip(log_std, self.lowest_log_std, self.highest_log_std)
        return SquashedMixture(outputs[: self.count], mean[:, 0], log_std[:, 0])

    def fits(self, space: Space) -> None:
        """Refuse what has no experts. Raises ``UserError`` for other actions than a box."""
        if not isinstance(space, Box):
            raise UserError(f"experts act in a box of actions, not in {space}: use head=SquashedGaussian")

    def rise(
        self, weights: Float[Array, " experts"], q: Float[Array, " experts"], bonus: Float[Array, " experts"]
    ) -> Scalar:
        """What the actor climbs in one view, of its candidates' weights, values and bonuses for entropy."""
        if self.routing == "exact":
            return jnp.sum(weights * (q + bonus))
        best = jax.nn.one_hot(jnp.argmax(q), self.count)
        entropy = jnp.sum(jax.lax.stop_gradient(weights) * bonus)
        return jnp.mean(q - jnp.square(weights - best)) + entropy
