"""Domain randomization: fields with equal ranges are drawn independently, by their correlation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from small_envs import VECTOR

from thespis.core.records import EnvSpec
from thespis.core.spaces import Discrete
from thespis.curricula.domain_randomization import DomainRandomization
from thespis.runtime.keys import seed_key

SPEC = EnvSpec("pole", VECTOR, Discrete(2), params={name: jnp.float32(0.5) for name in ("a", "b", "c")})


def test_fields_with_equal_bounds_are_drawn_independently():
    """Three fields with the same bounds: with one random stream for all they would be equal."""
    curriculum = DomainRandomization(tuple((name, 0.0, 1.0) for name in ("a", "b", "c")))
    params = jax.jit(lambda key: curriculum.draw(curriculum.init(SPEC, key), key, 2000).params)(seed_key(0))
    table = np.stack([params[name] for name in ("a", "b", "c")])
    np.testing.assert_allclose(np.corrcoef(table), np.eye(3), atol=0.1)
