"""What actions do: a net that foretells, from what an agent sees and what all do, what it sees next and all are paid.

An action enters by a short vector of its own, so actions that do the same come to have near vectors.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.core.records import EnvSpec
from thespis.core.spaces import Discrete
from thespis.critics.mixing import Made
from thespis.nets.body import Encoder


class Effects(eqx.Module):
    """``(o', r) = f(o, a of the others, z_a)`` with ``z_a`` of ``latent`` numbers (Wang et al., 2021, section 3.1).

    ``others`` numbers say what the others do. What is foretold of an observation are its numbers, pictures flat.
    """

    encoder: Encoder
    seen: Made
    acts: Made
    sees: Made
    paid: Made
    actions: int = eqx.field(static=True)

    def __init__(self, spec: EnvSpec, others: int, latent: int, units: int, key: Key[Array, ""]):
        assert isinstance(spec.action, Discrete)
        keys = jax.random.split(key, 5)
        self.encoder = Encoder(spec.observation, keys[0], _flat)
        size, self.actions = self.encoder.size, spec.action.n
        self.seen = Made(size + others, (2 * units,), units, keys[1])
        self.acts = Made(spec.action.n, (2 * units,), latent, keys[2])
        self.sees = Made(units + latent, (units,), size, keys[3])
        self.paid = Made(units + latent, (units,), 1, keys[4])

    def vectors(self) -> Float[Array, "n latent"]:
        """``z`` of every action."""
        return jax.vmap(self.acts)(jnp.eye(self.actions))

    def error(
        self,
        observation: PyTree,
        others: Float[Array, " others"],
        action: Int[Array, ""],
        following: PyTree,
        reward: Float[Array, ""],
        weight: float | int | Array,
    ) -> Float[Array, ""]:
        """Squared distance of what is foretold from what came, that of the reward times ``weight``."""
        seen = self.seen(jnp.concatenate([self.encoder(observation), others]))
        known = jnp.concatenate([seen, self.acts(jax.nn.one_hot(action, self.actions))])
        came = jax.lax.stop_gradient(self.encoder(following))
        return jnp.sum((self.sees(known) - came) ** 2) + weight * (self.paid(known)[0] - reward) ** 2


def _flat(shape: tuple[int, ...], key: Key[Array, ""]) -> None:
    """No net for pictures."""
