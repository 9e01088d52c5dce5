"""An arm of two links in a plane, seen from above, brings its tip to a point that is drawn anew in every episode.

Nothing pulls the arm but its motors: each joint is a mass of its own that a motor turns and that rubs,
``spin' = drive action - friction spin``, solved exactly over a step. Task and sizes are after "reacher" of the DeepMind
Control Suite (Tassa et al., 2018, arXiv:1801.00690), whose links are coupled by their inertia: here they are not, so
that every motion has a closed form.

Padding are further dimensions of the action that do nothing; what acts must find out which ones count.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box

JOINTS = 2
LINK = 0.5
"""Length of either link, m."""
NEAREST, FURTHEST = 0.2, 0.9
"""Goals lie so far from the shoulder, m."""
DRIVE, FRICTION = 10.0, 2.0
"""Largest acceleration by a motor (rad/s²) and loss of speed (1/s): a joint turns at 5 rad/s at most."""
EFFORT = 0.05
"""What the square of an action costs, in m of distance."""


class Reaching(eqx.Module):
    """One episode under way: angle of the upper link and of the lower one to it (rad), their speeds, where to (m)."""

    angle: Float[Array, "2"]
    spin: Float[Array, "2"]
    goal: Float[Array, "2"]
    time: Int[Array, ""]


class Reacher(eqx.Module):
    """Reach and stay: actions in ``[-1, 1]``, episodes are cut after ``limit`` steps of ``dt`` seconds.

    Observations are cosine and sine of both angles, the speeds over 5 rad/s, and the way from the tip to the goal (m).
    The reward of a step is minus the distance it leads to, less ``EFFORT`` times the squares of what the joints are
    asked for; if ``sparse``, 1 where the tip is within ``near`` m of the goal, else 0.
    """

    padding: int = eqx.field(static=True, default=0)
    """Dimensions of the action that do nothing, behind the two that count."""
    sparse: bool = eqx.field(static=True, default=False)
    """Pay only for being there."""
    near: float = eqx.field(static=True, default=0.1)
    """How near that is, m."""
    noise: float = eqx.field(static=True, default=0.0)
    """Standard deviation of what is added to every action that counts, before it is clipped."""
    limit: int = eqx.field(static=True, default=100)
    """Steps of an episode."""
    dt: float = eqx.field(static=True, default=0.05)
    """Seconds of a step."""

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limit."""
        return EnvSpec("reacher", Box((8,)), Box((JOINTS + self.padding,), -1.0, 1.0), time_limit=self.limit)

    def reset(self, params: tuple[()], key: Key[Array, ""]) -> tuple[Reaching, TimeStep]:
        """Any pose, at rest; a goal in any direction."""
        pose, bearing, far = jax.random.split(key, 3)
        angle = jax.random.uniform(pose, (JOINTS,), minval=-jnp.pi, maxval=jnp.pi)
        towards = jax.random.uniform(bearing, (), minval=-jnp.pi, maxval=jnp.pi)
        goal = jax.random.uniform(far, (), minval=NEAREST, maxval=FURTHEST) * _along(towards)
        state = Reaching(angle, jnp.zeros(JOINTS), goal, jnp.zeros((), "int32"))
        return state, self._answer(state, jnp.zeros(()))

    def step(
        self, state: Reaching, action: Float[Array, " dimension"], key: Key[Array, ""]
    ) -> tuple[Reaching, TimeStep]:
        """Turn for the length of one step."""
        asked = action[:JOINTS]
        control = jnp.clip(asked + self.noise * jax.random.normal(key, (JOINTS,)), -1.0, 1.0)
        angle, spin = turned(state.angle, state.spin, control, self.dt)
        state = Reaching(angle, spin, state.goal, state.time + 1)
        distance = jnp.linalg.norm(state.goal - tip(angle))
        effort = EFFORT * jnp.sum(jnp.clip(asked, -1.0, 1.0) ** 2)
        paid = (distance < self.near).astype("float32") if self.sparse else -distance - effort
        return state, self._answer(state, paid)

    def _answer(self, state: Reaching, paid: Float[Array, ""]) -> TimeStep:
        way, fastest = state.goal - tip(state.angle), DRIVE / FRICTION
        seen = jnp.concatenate([jnp.cos(state.angle), jnp.sin(state.angle), state.spin / fastest, way])
        return TimeStep(seen, paid, jnp.zeros((), bool), state.time >= self.limit)


def tip(angle: Float[Array, "2"]) -> Float[Array, "2"]:
    """Where the end of the lower link is, m from the shoulder."""
    return LINK * (_along(angle[0]) + _along(angle[0] + angle[1]))


def turned(
    angle: Float[Array, "2"], spin: Float[Array, "2"], control: Float[Array, "2"], dt: float
) -> tuple[Float[Array, "2"], Float[Array, "2"]]:
    """Angles (rad) and speeds (rad/s) after ``dt`` seconds of constant ``control`` in ``[-1, 1]``, exactly."""
    last, kept = DRIVE / FRICTION * control, jnp.exp(-FRICTION * dt)
    return angle + last * dt + (spin - last) * (1 - kept) / FRICTION, last + (spin - last) * kept


def _along(angle: Float[Array, ""]) -> Float[Array, "2"]:
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)])


SPARSE = Reacher(sparse=True, near=0.2)
"""Paid for being within 0.2 m of the goal alone."""
NOISY = Reacher(noise=0.5)
"""Motors that do what they are told only in the mean: noise as strong as half of the largest action."""
