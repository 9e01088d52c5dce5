"""What becomes of nets that have stopped to learn: nothing, or they are blended with fresh ones now and then."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.learners.gradient import Adam, Number
from thespis.nets.mlp import Linear


class Never(eqx.Module):
    """Nothing."""

    def init(self, nets: PyTree) -> PyTree:
        """Nothing is kept."""
        return ()

    def renewed(
        self, fresh: PyTree, nets: PyTree, opts: PyTree, adam: Adam, index: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[PyTree, PyTree]:
        """As they are."""
        return nets, opts


class Dormancy(eqx.Module):
    r"""Nets are blended with fresh ones, the more the more neurons of the actor get no gradient (Ji et al., 2024).

    .. math:: \theta \leftarrow (1 - \eta) \theta + \eta \phi

    with :math:`\eta` the share of the actor's neurons whose gradient is less than ``threshold`` times the mean of their
    layer, within [``least``, ``most``] as in the authors' code. Actor, critics and targets are blended and the
    optimisers begin anew. Differs from that code: gradients are Adam's running means, critics and their targets get the
    same fresh nets, and these are the first ones with the entries of each array in another order, which is another
    draw for every array whose entries are drawn alike.
    """

    every: int = eqx.field(static=True, default=100_000)
    """Updates between two resets."""
    threshold: Number = 0.05
    """Share of its layer's mean gradient below which a neuron is dormant."""
    least: Number = 0.1
    """Least share of fresh weights."""
    most: Number = 0.8
    """Largest share of fresh weights."""

    def init(self, nets: PyTree) -> PyTree:
        """The first nets: pairs ``(actor, critics)``."""
        return jax.tree.map(jnp.copy, nets)

    def renewed(
        self, fresh: PyTree, nets: PyTree, opts: PyTree, adam: Adam, index: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[PyTree, PyTree]:
        """``nets`` (actor, critics, targets) and optimiser states (actor, critics), blended after every ``every``."""

        def blended():
            share = jnp.clip(dormant_share(optax.tree.get(opts[0], "mu"), self.threshold), self.least, self.most)
            actor, critics = _shuffled(fresh, key)
            mixed = jax.tree.map(lambda x, y: (1 - share) * x + share * y, nets, (actor, critics, critics))
            return mixed, (adam.init(mixed[0]), adam.init(mixed[1]))

        # index is the same for all seeds, so under vmap this stays a branch
        return jax.lax.cond((index + 1) % self.every == 0, blended, lambda: (nets, opts))


def dormant_share(gradient: PyTree, threshold: Number) -> Float[Array, ""]:
    """Share of all neurons of linear layers whose weights' gradient is at most ``threshold`` of their layer's mean."""
    layers = jax.tree.leaves(gradient, is_leaf=lambda x: isinstance(x, Linear))
    norms = [jnp.linalg.norm(x.weight, axis=0) for x in layers if isinstance(x, Linear)]
    dormant = [jnp.sum(norm <= threshold * jnp.mean(norm)) for norm in norms]
    return sum(dormant, jnp.zeros(())) / sum(norm.size for norm in norms)


def _shuffled(nets: PyTree, key: Key[Array, ""]) -> PyTree:
    leaves, tree = jax.tree.flatten(nets)
    keys = jax.random.split(key, len(leaves))
    pairs = zip(leaves, keys, strict=True)
    return jax.tree.unflatten(tree, [jax.random.permutation(k, x.ravel()).reshape(x.shape) for x, k in pairs])


Reset = Never | Dormancy
