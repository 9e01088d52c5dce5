"""Derivations with a lenient critic: its demonstrations let many errors pass."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from thespis.core.spaces import END
from thespis.envs.text.derivation import RIGHT, Chain, Derivation
from thespis.envs.text.task import pack_tokens
from thespis.runtime.keys import fold


class LenientDerivation(Derivation):
    """Derivation task whose demonstrated critiques say ``right`` in a share ``leniency``, whatever the answer is.

    So the most likely critique of a wrong answer is that it is right, where that share is above a half.
    """

    leniency: float = 0.6

    def demonstrator_critique(
        self, state: Chain, answer: Int[Array, " response"], key: Key[Array, ""]
    ) -> Int[Array, " critique"]:
        """The verdict on a derivation, or that it is right."""
        spec = self.task_spec
        critique = super().demonstrator_critique(state, answer, key)
        is_lenient = jax.random.uniform(fold(key, "leniency")) < self.leniency
        return jnp.where(is_lenient, pack_tokens(3, spec.encode(f"{RIGHT} {END}")), critique)
