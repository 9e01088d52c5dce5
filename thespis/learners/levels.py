"""Two levels of one team: the upper chooses now and then, the lower acts under what was chosen until the next time.

Each level is a method for many agents, whole: the upper learns from periods, each one step of it, the lower from the
world's steps. What there is to choose, what either level sees, and what the lower is paid, is a part: :class:`Choices`.

All agents of a team choose together, every ``every`` steps or before that where the part says so. A window must hold
a whole period wherever it begins: ``2 every - 1`` steps.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.agents import Group
from thespis.core.contracts import Method, Mode
from thespis.core.errors import UserError
from thespis.core.feeds import Replay
from thespis.core.keys import fold, key_of
from thespis.core.records import Batch, Critique, EnvSpec, Report, Transition, View
from thespis.critics.central import joint, joint_space
from thespis.learners.crowd import require_many

Chosen = dict[str, Int[Array, "..."]]
"""What every agent has chosen, by group, ``[..., agent]``."""


class Choices(Protocol):
    """What the upper level may choose, and what that means to the lower one. Views and steps carry any leading axes."""

    def specs(self, spec: EnvSpec) -> tuple[EnvSpec, EnvSpec]:
        """The world as the upper level sees it, and as the lower one does."""
        ...

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> PyTree:
        """All that is known or learnt of the choices."""
        ...

    def told(self, known: PyTree) -> PyTree:
        """What of that an actor carries."""
        ...

    def above(self, told: PyTree, view: View) -> View:
        """What the upper level looks at."""
        ...

    def below(self, told: PyTree, view: View, chosen: Chosen) -> View:
        """What the lower level looks at."""
        ...

    def over(self, told: PyTree, view: View, chosen: Chosen) -> Bool[Array, "..."]:
        """Whether the team should choose anew at this view, before it is time."""
        ...

    def lower(self, told: PyTree, steps: Transition, chosen: Chosen, following: Chosen) -> Transition:
        """The steps as the lower level learns from them; ``following`` is what is chosen for the next ones."""
        ...

    def update(self, known: PyTree, batch: Batch, key: Key[Array, ""]) -> tuple[PyTree, dict[str, Array]]:
        """What is learnt of the choices, and metrics."""
        ...


class LevelsState(eqx.Module):
    """All that is learnt, or what of it acts."""

    upper: PyTree
    lower: PyTree
    known: PyTree
    groups: tuple[Group, ...] = eqx.field(static=True)


class Held(eqx.Module):
    """What is chosen, ``[row, agent]`` by group, and for how many more steps, ``[row]``."""

    lower: PyTree
    chosen: Chosen
    left: Int[Array, " row"]


class Levels(eqx.Module):
    """Two methods, one above the other. The upper one has no memory, and its feed is not used."""

    upper: eqx.AbstractVar[Method]
    lower: eqx.AbstractVar[Method]
    choices: eqx.AbstractVar[Choices]
    every: eqx.AbstractVar[int]

    for_many: ClassVar[bool] = True

    @property
    def feed(self) -> Replay:
        """What the lower level eats."""
        assert isinstance(self.lower.feed, Replay)
        return self.lower.feed

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> LevelsState:
        """Fresh levels. Raises ``UserError`` for a world of one agent, or windows too short to hold a period."""
        require_many(spec)
        if self.feed.length < 2 * self.every - 1:
            raise UserError(
                f"windows of {self.feed.length} steps may miss a whole period of {self.every}: "
                f"set feed.length to {2 * self.every - 1} or more"
            )
        told = joint_space(spec)
        above, below = (dataclasses.replace(one, privileged=told) for one in self.choices.specs(spec))
        upper, lower = self.upper.init(above, fold(key, "upper")), self.lower.init(below, fold(key, "lower"))
        if jax.tree.leaves(self.upper.begin(self.upper.policy(upper, Mode.EXPLOIT), 1)):
            raise UserError("the upper level chooses without memory: leave out its memory")
        return LevelsState(upper, lower, self.choices.init(spec, fold(key, "choices")), spec.groups)

    def policy(self, state: LevelsState, mode: Mode) -> LevelsState:
        """Policies of both levels."""
        levels = self.upper.policy(state.upper, mode), self.lower.policy(state.lower, mode)
        return LevelsState(*levels, self.choices.told(state.known), state.groups)

    def begin(self, policy: LevelsState, n: int) -> Held:
        """Nothing is chosen yet."""
        none = {group.name: jnp.zeros((n, group.count), "int32") for group in policy.groups}
        return Held(self.lower.begin(policy.lower, n), none, jnp.zeros(n, "int32"))

    def act(self, policy: LevelsState, memory: Held, view: View, key: Key[Array, ""]) -> tuple[PyTree, Held, PyTree]:
        """Actions under what is chosen; extras say what that is, and whether it was chosen at this step."""
        due = (memory.left == 0) | self.choices.over(policy.known, view, memory.chosen)
        fresh = self._choose(policy, view, fold(key, "upper"))
        chosen = {name: jnp.where(due[:, None], fresh[name], x) for name, x in memory.chosen.items()}
        below = self.choices.below(policy.known, view, chosen)
        action, lower, _ = self.lower.act(policy.lower, memory.lower, below, fold(key, "lower"))
        left = jnp.where(due, self.every, memory.left) - 1

        def said(x: Int[Array, "row agent"]) -> dict[str, Array]:
            flags = {"due": due, "last": left == 0}
            return {"chosen": x} | {name: jnp.broadcast_to(y[:, None], x.shape) for name, y in flags.items()}

        extras = {name: said(x) for name, x in chosen.items()}
        return action, Held(lower, chosen, left), extras

    def judge(self, state: LevelsState, episode: Transition) -> Critique:
        """Nothing: values of the upper level are those of whole periods."""
        return Critique()

    def update(self, state: LevelsState, batch: Batch, key: Key[Array, ""]) -> tuple[LevelsState, Report]:
        """One update of each level, and of what is known of the choices."""
        steps, told = self._stated(batch.steps, state.groups), self.choices.told(state.known)
        chosen, due, last = ({name: x[what] for name, x in steps.extras.items()} for what in ("chosen", "due", "last"))
        over = _any(last, steps.view) | self.choices.over(told, steps.next_view, chosen)
        whole = self._periods(told, dataclasses.replace(batch, steps=steps), _any(due, steps.view), over)
        upper, above = self.upper.update(state.upper, whole, fold(key, "upper"))

        greedy = self.policy(state, Mode.EXPLOIT)
        fresh = jax.vmap(lambda view: self._choose(greedy, view, key_of(0)))(steps.next_view)
        anew = {name: over[..., None] | ~steps.view.alive[name] for name in chosen}  # of the absent nothing is held
        following = {name: jnp.where(anew[name], fresh[name], x) for name, x in chosen.items()}
        under = dataclasses.replace(
            self.choices.lower(told, steps, chosen, following), extras={group.name: () for group in state.groups}
        )
        lower, below = self.lower.update(state.lower, dataclasses.replace(batch, steps=under), fold(key, "lower"))
        known, learnt = self.choices.update(state.known, batch, fold(key, "choices"))
        metrics = {f"upper_{name}": x for name, x in above.metrics.items()} | dict(below.metrics) | learnt
        return LevelsState(upper, lower, known, state.groups), Report(metrics)

    def _choose(self, policy: LevelsState, view: View, key: Key[Array, ""]) -> Chosen:
        above = self.choices.above(policy.known, view)
        begun = self.upper.begin(policy.upper, jax.tree.leaves(view.alive)[0].shape[0])
        return self.upper.act(policy.upper, begun, above, key)[0]

    def _stated(self, steps: Transition, groups: tuple[Group, ...]) -> Transition:
        """The steps with the state beside them, as neither level should mistake what it is told for the state."""
        now, following = (
            joint(groups, steps.view, steps.privileged),
            joint(groups, steps.next_view, steps.next_privileged),
        )
        return dataclasses.replace(steps, privileged=now, next_privileged=following)

    def _periods(self, told: PyTree, batch: Batch, begins: Array, over: Array) -> Batch:
        """The first period that begins in each window as one step ``[1, row]``; masked out where an end comes first."""
        steps = batch.steps
        reward, length, terminated, truncated = jax.vmap(period, in_axes=1, out_axes=0)(
            steps.reward, begins, over, steps.terminated, steps.truncated
        )
        start, rows = jnp.argmax(begins, axis=0), jnp.arange(begins.shape[1])
        at, to = (jax.tree.map(lambda x, i=i: x[i, rows][None], steps) for i in (start, start + length - 1))
        whole = dataclasses.replace(
            at,
            view=self.choices.above(told, at.view),
            action={name: said["chosen"] for name, said in at.extras.items()},
            reward=reward[None],
            terminated=terminated[None],
            truncated=truncated[None],
            next_view=self.choices.above(told, to.next_view),
            next_privileged=to.next_privileged,
            first=jnp.ones_like(at.first),
            each=to.each,
            extras={name: () for name in at.extras},
        )
        return Batch(whole, (batch.mask & begins)[start, rows][None], (), batch.index)


def period(
    reward: Float[Array, " time"],
    begins: Bool[Array, " time"],
    over: Bool[Array, " time"],
    terminated: Bool[Array, " time"],
    truncated: Bool[Array, " time"],
) -> tuple[Float[Array, ""], Int[Array, ""], Bool[Array, ""], Bool[Array, ""]]:
    """Sum of rewards, length and ends of the first period that ``begins`` in a window.

    It ends with the first step from there on with which the choice is ``over``, or the episode, or the window.
    """
    time = jnp.arange(reward.shape[0])
    start = jnp.argmax(begins)
    ends = (over | terminated | truncated | (time == time[-1])) & (time >= start)
    end = jnp.argmax(ends)
    inside = (time >= start) & (time <= end)
    return jnp.sum(jnp.where(inside, reward, 0.0)), end - start + 1, terminated[end], truncated[end]


def _any(said: dict[str, Array], view: View) -> Bool[Array, "time row"]:
    """Whether it is said of anyone who decides."""
    return jnp.any(jnp.concatenate([x & view.alive[name] for name, x in said.items()], axis=-1), axis=-1)
