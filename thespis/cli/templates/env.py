"""TemplateEnv: a corridor with a goal at its end, to start from: a compiled environment."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box, Discrete


class TemplateEnvState(eqx.Module):
    """State of one episode: position, length of the corridor, and number of steps taken."""

    position: Float[Array, ""]
    length: Float[Array, ""]
    time: Int[Array, ""]


class TemplateEnv(eqx.Module):
    """Corridor: action 1 goes towards the goal, action 0 back; reward 1 at the goal, and -0.01 for every other step."""

    time_limit: int = eqx.field(static=True, default=50)
    """Steps after which an episode is truncated."""

    @property
    def spec(self) -> EnvSpec:
        """Spaces, time limit and the parameters of an episode, which a curriculum may change."""
        observation_space = Box((2,), 0.0, 20.0)
        return EnvSpec(
            "template-env", observation_space, Discrete(2), time_limit=self.time_limit, params={"length": 5.0}
        )

    def reset(self, params: dict[str, Float[Array, ""]], key: Key[Array, ""]) -> tuple[TemplateEnvState, TimeStep]:
        """Start one episode at the beginning of the corridor."""
        length = jnp.clip(jnp.asarray(params["length"], "float32"), 1.0, 20.0)
        state = TemplateEnvState(jnp.zeros(()), length, jnp.zeros((), "int32"))
        return state, self._time_step(state, jnp.zeros(()))

    def step(
        self, state: TemplateEnvState, action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[TemplateEnvState, TimeStep]:
        """One step. Random numbers, if there were any, would come from ``key`` alone."""
        position = jnp.clip(state.position + 2.0 * action - 1.0, 0.0, state.length)
        state = TemplateEnvState(position, state.length, state.time + 1)
        return state, self._time_step(state, jnp.where(position >= state.length, 1.0, -0.01))

    def _time_step(self, state: TemplateEnvState, reward: Float[Array, ""]) -> TimeStep:
        terminated = state.position >= state.length
        truncated = (state.time >= self.time_limit) & ~terminated
        return TimeStep(jnp.stack([state.position, state.length]), reward, terminated, truncated)


def test_laws() -> None:
    """The environment keeps the laws of its contract: ``pytest template_env.py``."""
    from thespis.core.laws.components import check_environment

    check_environment(TemplateEnv())
