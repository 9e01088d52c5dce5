"""A team as one actor: what all see is one observation, what all do is one action, and one critic judges it.

What acting drew beside the action is stored, as whole numbers, and seen again in learning, so that ratios start at 1:
``chance``, from which a graph is drawn, and ``kept``, which of its edges were not struck out.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.actors.distributions import Product
from thespis.actors.graphs import Graph, Ordered, choices
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.keys import key_of
from thespis.core.records import EnvSpec, Transition, View
from thespis.core.spaces import Discrete, MultiDiscrete, dict_space
from thespis.critics.central import joint, joint_space
from thespis.critics.values import Value
from thespis.learners.crowd import require_many
from thespis.learners.normalisers import ObservationScale
from thespis.nets.body import Body, unroll
from thespis.nets.mlp import orthogonal

CHANCES = 2**31 - 1


def as_one(spec: EnvSpec) -> EnvSpec:
    """The world as a team sees it that acts as one. Raises ``UserError`` unless each agent has one discrete choice."""
    require_many(spec)
    if spec.game is not None:
        raise UserError(f"this method is for a team that is paid as one, and {spec.name} is a game: use ippo")
    each = choices(spec)
    if not all(each):
        raise UserError(
            f"this method needs one discrete choice of each agent, {spec.name} has {spec.action}: use mappo"
        )
    together = MultiDiscrete(each)
    seen = dict_space(
        chance=Discrete(CHANCES), done=together, kept=MultiDiscrete((2,) * len(each) ** 2), seen=observed(spec)
    )
    return EnvSpec(spec.name, seen, together, privileged=joint_space(spec))


def observed(spec: EnvSpec) -> Any:
    """What all agents see, without the state that only critics are shown."""
    return joint_space(EnvSpec(spec.name, spec.observation, spec.action, groups=spec.groups))


class TeamNetwork(eqx.Module):
    """Agents that choose along a graph, and a critic of what they do together."""

    actor: Ordered
    critic: Value

    def __init__(self, spec: EnvSpec, graph: Any, hidden: tuple[int, ...], key: Key[Array, ""]):
        actor_key, critic_key, value_key = jax.random.split(key, 3)
        self.actor = Ordered(spec, observed(spec), graph, hidden, actor_key)
        body = Body(joint_space(spec), hidden, critic_key, init=orthogonal(2**0.5), activation=jnp.tanh)
        self.critic = Value(body, orthogonal(1.0), value_key)

    def begin(self, n: int) -> Any:
        """No memories."""
        return ()

    def graph(self, observation: PyTree, *, best: bool = False) -> Graph:
        """The graph of one observation, drawn by its chance or the likeliest, less the edges that were not kept."""
        whole = self.actor.graph(observation["seen"], key_of(observation["chance"]), 0.0 if best else 1.0)
        return whole * observation["kept"].reshape(whole.shape)

    def choose(self, memory: Any, view: View) -> tuple[Product, Any]:
        """What each agent would do if its parents did what stands in the observation."""
        seen = view.observation
        return self.actor.given(self.graph(seen), seen["seen"], view.legal, seen["done"]), memory

    def distributions(self, memory: Any, views: View, first: Bool[Array, "time row"]) -> Product:
        """The distributions of a whole rollout."""
        return jax.vmap(jax.vmap(lambda view: self.choose((), view)[0]))(views)

    def values(self, memory: Any, seen: PyTree, first: Bool[Array, "time row"]) -> tuple[Float[Array, "time row"], Any]:
        """State values of a whole rollout."""
        features, memories = unroll(self.critic.body, (), seen, first)
        return jax.vmap(jax.vmap(self.critic.out))(features)[..., 0], memories

    def next_values(self, memories: Any, seen: PyTree) -> Float[Array, "time row"]:
        """Values of what follows."""
        return jax.vmap(jax.vmap(lambda o: self.critic((), o)[0]))(seen)


class TeamActor(eqx.Module):
    """Agents that choose in turn, and the chance that an edge is kept."""

    network: TeamNetwork
    scale: PyTree
    observations: ObservationScale
    kept: Float[Array, ""]
    mode: Mode = eqx.field(static=True)

    def act(self, view: View, key: Key[Array, ""]) -> tuple[dict[str, Array], dict[str, Array]]:
        """What each agent chooses in one world, ``[agent]`` by group, and what chance drew for it."""
        team, best = self.network.actor, self.mode is Mode.EXPLOIT
        chance_key, edge_key, key = jax.random.split(key, 3)
        agents = len(team.choices)
        chance = jax.random.randint(chance_key, (), 0, CHANCES, "int32")
        luck = jnp.full((agents, agents), 0.5) if best else jax.random.uniform(edge_key, (agents, agents))
        kept = heard(team, view, luck < self.kept)
        seen = {"chance": chance, "done": jnp.zeros(agents, "int32"), "kept": kept}
        seen = self.observations.apply(self.scale, seen | {"seen": joint(team.groups, view, None)})
        graph = self.network.graph(seen, best=best)
        done, log_prob = team.draw(graph, seen["seen"], possible(team, view), key, best=best)
        return team.apart(done), {"log_prob": log_prob, "chance": chance, "kept": kept}


def together(team: Ordered, steps: Transition, drawn: dict[str, Array]) -> Transition:
    """Steps ``[..., agent]`` of a team as those of one; ``drawn``: what acting drew beside the action.

    Of those who do not decide nothing is seen, and they did their first legal action, which they could not help doing.
    """
    alive, legal = steps.view.alive, possible(team, steps.view)
    acted = [jnp.where(alive[g.name], steps.action[g.name], jnp.argmax(legal[g.name], -1)) for g in team.groups]
    done = jnp.concatenate(acted, axis=-1).astype("int32")

    def seen(view: View) -> View:
        observation = {"chance": drawn["chance"], "done": done, "kept": drawn["kept"]}
        return View(observation | {"seen": joint(team.groups, view, None)}, possible(team, view))

    pairs = (steps.view, steps.privileged), (steps.next_view, steps.next_privileged)
    told, next_told = (joint(team.groups, *pair) for pair in pairs)
    extras = {name: x for name, x in drawn.items() if name == "log_prob"}
    return Transition(
        seen(steps.view), done, steps.reward, steps.terminated, steps.truncated, seen(steps.next_view), steps.first,
        extras, told, next_told,
    )  # fmt: skip


def possible(team: Ordered, view: View) -> dict[str, Bool[Array, "..."]]:
    """What each agent may do, ``[..., agent, n]`` by group: its first legal action alone if it does not decide."""

    def one(name: str, width: int) -> Bool[Array, "..."]:
        alive = view.alive[name][..., None]
        legal = jnp.ones((*alive.shape[:-1], width), bool) if view.legal is None else view.legal[name]
        return jnp.where(alive, legal, jnp.argmax(legal, axis=-1)[..., None] == jnp.arange(width))

    return {name: one(name, width) for name, width in team.widths().items()}


def heard(team: Ordered, view: View, kept: Bool[Array, "parent child"]) -> Int[Array, " edge"]:
    """Edges of one world that are kept, end to end, without those from agents who do not decide."""
    there = jnp.concatenate([view.alive[g.name] for g in team.groups])
    return (kept & there[:, None]).ravel().astype("int32")
