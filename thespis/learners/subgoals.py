"""Subgoals: what an agent should come to see, chosen above, and what the lower level is paid for it.

The upper level of :class:`~thespis.learners.levels.Levels` chooses a number of what each agent sees, one of ``marks``;
the subgoal is reached where that number is above one half. The lower level sees which it is. All choose anew when all
have reached theirs, or when it is time; who was there first stays or strays until then.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from thespis.core.agents import Group
from thespis.core.errors import UserError
from thespis.core.records import Batch, EnvSpec, Transition, View
from thespis.core.spaces import Box, Discrete, dict_space
from thespis.learners.crowd import one_of

PerAgent = dict[str, Array]
"""By group, ``[..., agent]``."""


class Reached(eqx.Module):
    """The lower level is paid 1 for each agent that stands at its subgoal, whose own task ends there."""

    def paid(self, steps: Transition, reached: PerAgent) -> Float[Array, "..."]:
        """What the team is paid for a step, axes of ``steps.reward``."""
        return sum((x.sum(axis=-1).astype("float32") for x in reached.values()), jnp.zeros_like(steps.reward))

    def goes_on(self, alive: PerAgent, reached: PerAgent) -> PerAgent:
        """For whom a value follows."""
        return {name: x & ~reached[name] for name, x in alive.items()}


class WorldsReward(eqx.Module):
    """The lower level is paid as the world pays: what a subgoal is worth to it that brings nothing by itself."""

    def paid(self, steps: Transition, reached: PerAgent) -> Float[Array, "..."]:
        """What the team is paid for a step, axes of ``steps.reward``."""
        return steps.reward

    def goes_on(self, alive: PerAgent, reached: PerAgent) -> PerAgent:
        """For whom a value follows."""
        return alive


class Subgoals(eqx.Module):
    """Numbers of what an agent sees, which should be a vector."""

    marks: tuple[int, ...] = eqx.field(static=True, default=())
    """Which of them may be chosen, counted from the end where negative; none: all."""
    pay: Reached | WorldsReward = Reached()
    """What the lower level is paid: Reached or WorldsReward."""

    def specs(self, spec: EnvSpec) -> tuple[EnvSpec, EnvSpec]:
        """Above, subgoals to choose from; below, actions under a subgoal. Raises ``UserError`` for other spaces."""
        sizes = {group.name: self._count(spec, group) for group in spec.groups}
        goals = {name: Discrete(n) for name, n in sizes.items()}
        seen = {g.name: dict_space(own=one_of(spec, g).observation, goal=goals[g.name]) for g in spec.groups}
        above = dataclasses.replace(spec, action=dict_space(**goals), legal=False)
        return above, dataclasses.replace(spec, observation=dict_space(**seen))

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> tuple[()]:
        """Nothing is learnt."""
        return ()

    def told(self, known: tuple[()]) -> tuple[()]:
        """Nothing."""
        return known

    def above(self, told: tuple[()], view: View) -> View:
        """What the world shows; any subgoal may be chosen."""
        return dataclasses.replace(view, legal=None)

    def below(self, told: tuple[()], view: View, chosen: PerAgent) -> View:
        """What the world shows, and the subgoal."""
        seen = {name: {"own": own, "goal": chosen[name]} for name, own in view.observation.items()}
        return dataclasses.replace(view, observation=seen)

    def over(self, told: tuple[()], view: View, chosen: PerAgent) -> Bool[Array, "..."]:
        """Whether all who decide have reached their subgoals."""
        reached = self.reached(view, chosen)
        return jnp.all(jnp.concatenate([x | ~view.alive[name] for name, x in reached.items()], axis=-1), axis=-1)

    def lower(self, told: tuple[()], steps: Transition, chosen: PerAgent, following: PerAgent) -> Transition:
        """Steps towards the same subgoal, whatever is chosen next, and what they are paid."""
        alive = steps.view.alive
        reached = {name: x & alive[name] for name, x in self.reached(steps.next_view, chosen).items()}
        after = self.below(told, steps.next_view, chosen)
        after = dataclasses.replace(after, alive=self.pay.goes_on(steps.next_view.alive, reached))
        now = self.below(told, steps.view, chosen)
        return dataclasses.replace(steps, view=now, next_view=after, reward=self.pay.paid(steps, reached))

    def update(self, known: tuple[()], batch: Batch, key: Key[Array, ""]) -> tuple[tuple[()], dict[str, Array]]:
        """Nothing is learnt; ``reached`` is the share of steps that end at the subgoal."""
        chosen = {name: said["chosen"] for name, said in batch.steps.extras.items()}
        reached = self.reached(batch.steps.next_view, chosen)
        counted = jnp.concatenate([x & batch.mask[..., None] for x in reached.values()], axis=-1)
        share = jnp.sum(counted) / jnp.maximum(jnp.sum(batch.mask) * counted.shape[-1], 1)
        return known, {"reached": share}

    def reached(self, view: View, chosen: PerAgent) -> PerAgent:
        """Whether each agent sees what it should."""

        def one(name: str) -> Bool[Array, "..."]:
            seen = view.observation[name]
            told = jnp.take(seen, jnp.asarray(self.marks, "int32"), axis=-1) if self.marks else seen
            return jnp.take_along_axis(told, chosen[name][..., None], axis=-1)[..., 0] > 0.5

        return {name: one(name) for name in chosen}

    def _count(self, spec: EnvSpec, group: Group) -> int:
        one = one_of(spec, group)
        if not isinstance(one.observation, Box) or len(one.observation.shape) != 1:
            raise UserError(f"subgoals are numbers of a vector that is seen, and {one.name} shows {one.observation}")
        size = one.observation.shape[0]
        if any(not -size <= mark < size for mark in self.marks):
            raise UserError(f"{one.name} shows {size} numbers: choices.marks must be between {-size} and {size - 1}")
        return len(self.marks) or size
