"""Network resets: networks are blended with fresh ones now and then, by the share of dormant neurons."""

from __future__ import annotations

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.records import Number
from thespis.learners.optim.optimizers import Optimizer
from thespis.nets.mlp import Linear


class _NoReset(eqx.Module):
    """No network reset: networks keep their parameters."""

    def init(self, networks: PyTree) -> PyTree:
        """An empty state: nothing has to be kept."""
        return ()

    def maybe_reset(
        self,
        initial_networks: PyTree,
        networks: PyTree,
        opt_states: PyTree,
        optimizers: tuple[Optimizer, Optimizer],
        update_index: Int[Array, ""],
        key: Key[Array, ""],
    ) -> tuple[PyTree, PyTree]:
        """Networks and optimizer states unchanged."""
        return networks, opt_states


NO_RESET = _NoReset()
"""What ``network_reset=None`` does."""


class NetworkReset(eqx.Module):
    """Slot: how networks get fresh parameters now and then."""

    @abc.abstractmethod
    def init(self, networks: PyTree) -> PyTree:
        """What is kept of the initial networks, a pair ``(actor, critics)``."""

    @abc.abstractmethod
    def maybe_reset(
        self,
        initial_networks: PyTree,
        networks: PyTree,
        opt_states: PyTree,
        optimizers: tuple[Optimizer, Optimizer],
        update_index: Int[Array, ""],
        key: Key[Array, ""],
    ) -> tuple[PyTree, PyTree]:
        """Networks (actor, critics, targets) and optimizer states (of actor and critics) after a reset, if one is due.

        ``initial_networks`` is what :meth:`init` returned, ``optimizers`` are those of actor and critics.
        """


class DormantReset(NetworkReset):
    r"""Dormant-neuron reset (Ji et al., 2024): networks are blended with fresh ones.

    The more neurons of the actor are dormant, the more they are blended.

    .. math:: \theta \leftarrow (1 - \eta) \theta + \eta \phi

    with :math:`\eta` the share of the actor's neurons whose gradient is at most ``dormant_threshold`` times the mean of
    their layer, clipped to [``min_blend``, ``max_blend``] as in the authors' code. Actor, critics and targets are
    blended and the optimizers restart. Differs from that code: gradients are Adam's running means, critics and their
    targets get the same fresh networks, and these are the initial ones with the entries of each array permuted, which
    is another draw for every array whose entries are identically distributed.
    """

    reset_interval: int = eqx.field(static=True, default=100_000)
    """Updates between two resets."""
    dormant_threshold: Number = 0.05
    """A neuron is dormant below this multiple of its layer's mean gradient."""
    min_blend: Number = 0.1
    """Smallest share of fresh weights."""
    max_blend: Number = 0.8
    """Largest share of fresh weights."""

    def init(self, networks: PyTree) -> PyTree:
        """A copy of the initial networks, a pair ``(actor, critics)``."""
        return jax.tree.map(jnp.copy, networks)

    def maybe_reset(
        self,
        initial_networks: PyTree,
        networks: PyTree,
        opt_states: PyTree,
        optimizers: tuple[Optimizer, Optimizer],
        update_index: Int[Array, ""],
        key: Key[Array, ""],
    ) -> tuple[PyTree, PyTree]:
        """Networks and optimizer states, blended with fresh ones every ``reset_interval`` updates.

        ``networks`` are actor, critics and targets, ``opt_states`` those of actor and critics. Raises ``UserError`` if
        the optimizer keeps no momentum.
        """

        momentum = optax.tree.get(opt_states[0], "mu")
        if momentum is None:
            raise UserError("DormantReset reads the optimizer's momentum: use Adam, or one of optax that has momentum")

        def blend():
            share = jnp.clip(dormant_ratio(momentum, self.dormant_threshold), self.min_blend, self.max_blend)
            actor, critics = _permute_entries(initial_networks, key)
            mixed = jax.tree.map(lambda x, y: (1 - share) * x + share * y, networks, (actor, critics, critics))
            return mixed, (optimizers[0].init(mixed[0]), optimizers[1].init(mixed[1]))

        # update_index is the same for all seeds, so under vmap this stays a branch
        return jax.lax.cond((update_index + 1) % self.reset_interval == 0, blend, lambda: (networks, opt_states))


def dormant_ratio(gradient: PyTree, threshold: Number) -> Float[Array, ""]:
    """Share of all neurons of linear layers whose gradient norm is at most ``threshold`` times their layer's mean."""
    layers = jax.tree.leaves(gradient, is_leaf=lambda x: isinstance(x, Linear))
    norms = [jnp.linalg.norm(x.weight, axis=0) for x in layers if isinstance(x, Linear)]
    dormant = [jnp.sum(norm <= threshold * jnp.mean(norm)) for norm in norms]
    return sum(dormant, jnp.zeros(())) / sum(norm.size for norm in norms)


def _permute_entries(networks: PyTree, key: Key[Array, ""]) -> PyTree:
    leaves, tree = jax.tree.flatten(networks)
    keys = jax.random.split(key, len(leaves))
    pairs = zip(leaves, keys, strict=True)
    return jax.tree.unflatten(tree, [jax.random.permutation(k, x.ravel()).reshape(x.shape) for x, k in pairs])
