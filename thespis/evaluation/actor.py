"""A trained policy as a callable for a single environment, with its memory and action scaling inside."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from thespis.core.contracts import Method, Mode
from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, View
from thespis.core.spaces import unscale_action
from thespis.runtime.keys import fold, seed_key


class Actor:
    """Trained policy as a callable, ``action = actor(observation)``, with actions in the environment's units.

    Call :meth:`reset` at the start of every episode: it clears the memory of recurrent policies.
    """

    def __init__(self, method: Method, state: PyTree, spec: EnvSpec, *, greedy: bool, seed: int = 0):
        self._policy = method.policy(state, Mode.EXPLOIT if greedy else Mode.SAMPLE)
        self._begin = lambda: method.init_memory(self._policy, 1)
        self._key, self._tick, self._memory = seed_key(seed), 0, self._begin()

        def act(policy, memory, view, key, tick):
            action, memory, _ = method.act(policy, memory, view, fold(key, "act", tick))
            return jax.tree.map(lambda x: x[0], unscale_action(spec.action_space, action)), memory

        self._act = jax.jit(act)

    @classmethod
    def from_states(
        cls,
        method: Method,
        states: PyTree,
        spec: EnvSpec,
        seeds: list[int],
        seed: int | None,
        *,
        greedy: bool,
    ) -> Actor:
        """The actor of one training seed (the first if ``None``) from training states ``[seed, ...]``.

        Raises ``UserError`` if the run has no such seed.
        """
        if seed is not None and seed not in seeds:
            raise UserError(f"this run has no seed {seed}: it has {', '.join(map(str, seeds))}")
        index = 0 if seed is None else seeds.index(seed)
        state = jax.tree.map(lambda x: x[index], states)
        return cls(method, state, spec, greedy=greedy, seed=seeds[index])

    def reset(self) -> None:
        """Start an episode: clear the policy's memory."""
        self._memory = self._begin()

    def __call__(self, observation: Any, legal: Any = None) -> Any:
        """The action for one observation (and its action mask ``legal``, where the environment has one), as numpy."""
        view = jax.tree.map(lambda x: jnp.asarray(x)[None], View(observation, legal))
        action, self._memory = self._act(self._policy, self._memory, view, self._key, np.int32(self._tick))
        self._tick += 1
        return jax.tree.map(np.asarray, action)
