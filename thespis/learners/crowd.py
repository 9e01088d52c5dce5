"""A method for one agent as a method for many: every agent learns by it, as if the others were part of the world.

With shared parameters this is self-play where agents play against each other (the opponent is always the latest self),
and independent learning with parameter sharing where they are a team. Critics may see more than their agent does.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.agents import Group
from thespis.core.contracts import Method, Mode
from thespis.core.errors import UserError
from thespis.core.feeds import Episodes, Feed, Rollouts
from thespis.core.keys import fold, per_index
from thespis.core.readable import Readable
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Report, Transition, View
from thespis.core.spaces import Tree
from thespis.critics.central import Own, Sight
from thespis.learners.sharing import Shared, Sharing


class Members(eqx.Module):
    """What there is of every group: states, or policies."""

    of: dict[str, PyTree]
    groups: tuple[Group, ...] = eqx.field(static=True)


class Crowd(eqx.Module):
    """Every agent by itself. A concrete method names the ``method`` they learn by; nothing here is overridden.

    Where critics see what the others will do, the method says what that is: ``follow(state, view, key)``.
    """

    method: eqx.AbstractVar[Method]
    sharing: eqx.AbstractVar[Sharing]
    critics: eqx.AbstractVar[Sight]

    for_many: ClassVar[bool] = True

    @property
    def feed(self) -> Feed:
        """What the method for one eats."""
        return self.method.feed

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> Members:
        """Learners by group. Raises ``UserError`` for a world of one agent, or one whose waits the method cannot span.

        Methods with a replay learn from single steps: they would take a wait for a decision.
        """
        require_many(spec)
        if spec.game is not None and not isinstance(self.feed, Rollouts | Episodes):
            raise UserError(
                f"{self.method.name} learns from single steps, and in {spec.name} players wait for their turn: "
                "use a method that learns from rollouts (ppo, a2c, impala)"
            )

        def learner(group: Group) -> PyTree:
            one = dataclasses.replace(one_of(spec, group), privileged=self.critics.space(spec, group))
            return self.sharing.init(self.method, one, group.count, fold(key, group.name))

        return Members({group.name: learner(group) for group in spec.groups}, spec.groups)

    def policy(self, state: Members, mode: Mode) -> Members:
        """Policies by group."""
        found = {name: self.sharing.policy(self.method, each, mode) for name, each in state.of.items()}
        return Members(found, state.groups)

    def begin(self, policy: Members, n: int) -> dict[str, PyTree]:
        """Memories by group, ``[n, agent, ...]``."""
        return {g.name: self.sharing.begin(self.method, policy.of[g.name], n, g.count) for g in policy.groups}

    def act(self, policy: Members, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """Actions, memories and extras by group, ``[row, agent, ...]``."""
        found = {}
        for group in policy.groups:
            name, count = group.name, group.count
            given = policy.of[name], memory[name], view_of(view, name), fold(key, name)
            found[name] = self.sharing.act(self.method, *given, count)
        action, memory, extras = ({name: parts[i] for name, parts in found.items()} for i in range(3))
        return action, memory, extras

    def probabilities(self, policy: Members, memory: Any, view: View) -> dict[str, Float[Array, "row agent n"]]:
        """Of every agent's choices. Raises ``UserError`` if the method for one does not tell them."""
        if not isinstance(self.method, Readable):
            raise UserError(f"{self.method.name} plays, but does not tell its probabilities")
        found = {}
        for group in policy.groups:
            name, count = group.name, group.count
            given = policy.of[name], memory[name], view_of(view, name)
            found[name] = self.sharing.probabilities(self.method, *given, count)
        return found

    def judge(self, state: Members, episode: Transition) -> Critique:
        """Nothing: every agent has an opinion of its own."""
        return Critique()

    def update(self, state: Members, batch: Batch, key: Key[Array, ""]) -> tuple[Members, Report]:
        """Every group learns from what it has seen."""
        shown = self.critics.shown(
            state.groups, batch, lambda: self._following(state, batch.steps, fold(key, "follow"))
        )
        learnt, metrics = {}, {}
        for group in state.groups:
            name, seen = group.name, batch_of(batch, group, *shown[group.name])
            learnt[name], report = self.sharing.update(self.method, state.of[name], seen, fold(key, name))
            prefix = f"{name}_" if len(state.groups) > 1 else ""
            metrics |= {prefix + metric: value for metric, value in report.metrics.items()}
        return Members(learnt, state.groups), Report(metrics)

    def _following(self, state: Members, steps: Transition, key: Key[Array, ""]) -> dict[str, PyTree]:
        """What targets take all agents to do after each step, ``[time, row, agent, ...]``."""

        def one(name: str) -> PyTree:
            keys, view = per_index(fold(key, name), steps.reward.shape[0]), view_of(steps.next_view, name)
            return jax.vmap(lambda *given: self.sharing.follow(self.method, state.of[name], *given))(view, keys)

        return {group.name: one(group.name) for group in state.groups}


class EachAlone(Crowd):
    """Any method for one agent, for many."""

    method: Method
    """By what each of them learns."""
    sharing: Sharing = Shared()
    """Parameters: Shared by a group, or Separate."""
    critics: Sight = Own()
    """What critics see: Own, what the agent sees."""

    @property
    def name(self) -> str:
        """That of the method for one."""
        return self.method.name

    @property
    def citations(self) -> tuple[Citation, ...]:
        """Those of the method for one."""
        return self.method.citations

    @property
    def details(self) -> tuple[str, ...]:
        """Those of the method for one."""
        return (*self.method.details, "every agent learns as if the others were part of the world")


def require_many(spec: EnvSpec) -> None:
    """Refuse a world of one agent."""
    if not spec.groups:
        raise UserError(f"{spec.name} has one agent, and this method is for many: use the method for one")


def one_of(spec: EnvSpec, group: Group) -> EnvSpec:
    """The world as one agent of a group sees it."""
    spaces = (dict(space.parts)[group.name] for space in (spec.observation, spec.action) if isinstance(space, Tree))
    observation, action = spaces
    return EnvSpec(f"{spec.name}/{group.name}", observation, action, spec.legal, spec.time_limit)


def view_of(view: View, name: str) -> View:
    """What the agents of a group look at, ``[row, agent, ...]``."""
    legal = None if view.legal is None else view.legal[name]
    return View(view.observation[name], legal, None if view.alive is None else view.alive[name])


def batch_of(batch: Batch, group: Group, privileged: PyTree = None, next_privileged: PyTree = None) -> Batch:
    """What the agents of a group have seen, ``[time, row, agent, ...]``; the mask leaves out where they did not decide.

    An agent's episode ends where it goes, or with that of all. ``privileged``: what their critics see, laid out alike.
    """
    steps, name = batch.steps, group.name

    def all_of_them(tree: PyTree) -> PyTree:
        return jax.tree.map(lambda x: jnp.broadcast_to(x[:, :, None], (*x.shape[:2], group.count, *x.shape[2:])), tree)

    each: Any = steps.each
    view, following = view_of(steps.view, name), view_of(steps.next_view, name)
    terminated, truncated, first, mask = all_of_them((steps.terminated, steps.truncated, steps.first, batch.mask))
    own = Transition(
        view, steps.action[name], each[name].reward, terminated | each[name].gone, truncated, following, first,
        steps.extras[name], privileged, next_privileged,
    )  # fmt: skip
    memory = batch.memory[name] if batch.memory else ()
    return Batch(own, mask & view.alive, memory, batch.index)
