"""Fields that vary together are drawn apart: knowing one tells nothing of another."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from worlds import VECTOR

from thespis.core.keys import key_of
from thespis.core.records import EnvSpec
from thespis.core.spaces import Discrete
from thespis.curricula.domain_randomisation import DomainRandomisation

SPEC = EnvSpec("pole", VECTOR, Discrete(2), params={name: jnp.float32(0.5) for name in ("a", "b", "c")})


def test_fields_of_one_kind_are_not_drawn_alike():
    """Three numbers between the same bounds, which one stream for all would make equal."""
    curriculum = DomainRandomisation(tuple((name, 0.0, 1.0) for name in ("a", "b", "c")))
    drawn = jax.jit(lambda key: curriculum.draw(curriculum.init(SPEC, key), key, 2000))(key_of(0))
    table = np.stack([drawn[name] for name in ("a", "b", "c")])
    np.testing.assert_allclose(np.corrcoef(table), np.eye(3), atol=0.1)
