"""What VDN and QMIX have in common: a value for each agent, mixed into one of the team, which is what learns.

A concrete method names its mixer; nothing here is overridden.
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.actors.greedy import epsilon_greedy
from thespis.actors.heads import act_rows
from thespis.core.agents import Group
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.feeds import Replay
from thespis.core.keys import fold, per_index
from thespis.core.records import Batch, Critique, EnvSpec, Report, Transition, View
from thespis.core.spaces import Discrete
from thespis.critics.attending import Attending
from thespis.critics.central import joint_space, numbered
from thespis.critics.embedding import Embedded, Embedding
from thespis.critics.matching import Matched, Matching
from thespis.critics.mixing import Direct, Mixer, Utility
from thespis.learners.choices import masked
from thespis.learners.crowd import require_many, view_of
from thespis.learners.gradient import Adam, Number, gradient_step, polyak
from thespis.learners.likeness import NoContrast, RoleContrast
from thespis.learners.team import Team, mixed, taken, valued
from thespis.nets.body import GRU
from thespis.objectives.normalise import mean
from thespis.objectives.values import double_q, huber


class FactoredState(eqx.Module):
    """All that is learnt."""

    team: Team
    target: Team
    opt: PyTree
    updates: Int[Array, ""]
    known: PyTree
    """What the auxiliary part has learnt."""


class FactoredPolicy(eqx.Module):
    """The team and the present epsilon."""

    team: Team
    epsilon: Float[Array, ""]


class Factored(eqx.Module):
    """One discrete choice for each agent; all are paid alike. Steps of a window are each fitted to their successor."""

    name: eqx.AbstractClassVar[str]
    mixer: eqx.AbstractVar[Mixer | Attending]

    learning_rate: Number = 5e-4
    """Step size."""
    discount: Number = 0.99
    """Discount per step, in [0, 1]."""
    max_gradient_norm: Number = 10.0
    """Global norm to which the gradient is clipped."""
    first_epsilon: Number = 1.0
    """Chance, for each agent, of a random choice before the first update."""
    last_epsilon: Number = 0.05
    """Chance of a random choice after ``epsilon_updates`` updates."""
    epsilon_updates: Number = 10_000.0
    """Updates over which the chance falls, linearly."""
    huber: Number = 1e6
    """Error, in units of reward, beyond which the loss is linear; a large one squares every error."""
    double: bool = eqx.field(static=True, default=True)
    """Choose the next actions by the online nets."""
    target_every: int = eqx.field(static=True, default=200)
    """Updates between copies of the nets to the target."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    """Units of each hidden layer of the agents' nets."""
    utility: Direct | Matched | Embedded = Direct()
    """How the values of an agent's choices are made: Direct, Matched with representations of them, Embedded roles."""
    auxiliary: NoContrast | RoleContrast = NoContrast()
    """What else the agents' nets learn from: NoContrast, or RoleContrast where they have roles."""
    memory: GRU | None = eqx.field(static=True, default=None)
    """Recurrent core after the hidden layers: None or GRU, with windows (feed.length) of several steps."""
    feed: Replay = eqx.field(static=True, default=Replay(batch=128, warmup=1_000, every=2, envs=8))
    """Replay: capacity, batch, warmup, every, updates, length."""

    for_many: ClassVar[bool] = True

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> FactoredState:
        """Fresh nets and their copies. Raises ``UserError`` where not all agents of a team make one discrete choice."""
        require_many(spec)
        if spec.game is not None:
            raise UserError(f"{self.name} is for a team that is paid as one, and {spec.name} is a game: use ippo")

        def utility(group: Group) -> Utility | Matching | Embedding:
            one = numbered(spec, group)
            if not isinstance(one.action, Discrete):
                raise UserError(
                    f"{self.name} needs one discrete choice, {one.name} has {one.action}: use mappo or masac"
                )
            return self.utility.build(one, self.hidden, self.memory, fold(key, group.name))

        agents = sum(group.count for group in spec.groups)
        mixer = self.mixer.build(joint_space(spec), agents, self.utility.roles, fold(key, "mixer"))
        team = Team({group.name: utility(group) for group in spec.groups}, mixer, spec.groups)
        known = self.auxiliary.init(team.of, self.utility.roles, fold(key, "auxiliary"))
        return FactoredState(team, team, self._adam().init(team), jnp.zeros((), "int32"), known)

    def policy(self, state: FactoredState, mode: Mode) -> FactoredPolicy:
        """Nets and epsilon: falling while it explores, the last one when sampled, 0 when greedy."""
        progress = jnp.clip(state.updates / self.epsilon_updates, 0.0, 1.0)
        falling = self.first_epsilon + progress * (self.last_epsilon - self.first_epsilon)
        epsilon = {Mode.EXPLORE: falling, Mode.SAMPLE: self.last_epsilon, Mode.EXPLOIT: 0.0}[mode]
        return FactoredPolicy(eqx.tree_at(lambda t: t.mixer, state.team, ()), jnp.asarray(epsilon, "float32"))

    def begin(self, policy: FactoredPolicy, n: int) -> dict[str, PyTree]:
        """Memories by group, ``[n, agent, ...]``."""
        return policy.team.begin(n)

    def act(self, policy: FactoredPolicy, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """Each agent's best legal choice, or a random legal one with chance epsilon, ``[row, agent]``."""

        def one(group: Group, memory: Any, view: View, key: Key[Array, ""]) -> tuple[Array, Any]:
            def agent(memory, seen, legal, key):
                values, memory = policy.team.values(group.name, memory, seen)
                return epsilon_greedy(masked(values, legal), legal, policy.epsilon, key), memory

            seen = {"own": view.observation, "which": jnp.arange(group.count, dtype="int32")}
            return jax.vmap(agent)(memory, seen, view.legal, per_index(key, group.count))

        found = {}
        for group in policy.team.groups:
            given = memory[group.name], view_of(view, group.name), fold(key, group.name)
            found[group.name] = act_rows(lambda *row, group=group: one(group, *row), *given)
        action, memory = ({name: parts[i] for name, parts in found.items()} for i in range(2))
        return action, memory, ()

    def judge(self, state: FactoredState, episode: Transition) -> Critique:
        """The team's value of what was done, and its advantage over the best; steps are those of one episode."""
        steps = jax.tree.map(lambda x: x[:, None], episode)
        now, _ = valued(state.team, steps)
        done = mixed(state.team, taken(now.values, steps.action), now)[:, 0]
        best = {name: _best(x, steps.view, name) for name, x in now.values.items()}
        most = mixed(state.team, taken(now.values, best), now)[:, 0]
        return Critique(value=done, advantage=done - most, discount=self.discount)

    def update(self, state: FactoredState, batch: Batch, key: Key[Array, ""]) -> tuple[FactoredState, Report]:
        """One step of all nets and the mixer; the target is copied every ``target_every`` updates."""
        steps = batch.steps
        goal = jax.lax.stop_gradient(self.targets(state, steps))

        def loss(team: Team):
            now, _ = valued(team, steps)
            value = mixed(team, taken(now.values, steps.action), now)
            total = mean(huber(value - goal, self.huber), batch.mask)
            return total, ({"critic_loss": total, "value": mean(value, batch.mask)}, now.told)

        team, opt, (metrics, told), norm = gradient_step(self._adam(), loss, state.team, state.opt)
        updates = state.updates + 1
        there = {name: alive & batch.mask[..., None] for name, alive in steps.view.alive.items()}
        nets, known, found = self.auxiliary.learn(team.of, state.known, told, there, updates)
        team = eqx.tree_at(lambda t: t.of, team, nets)
        copy = (updates % self.target_every == 0).astype("float32")
        target = polyak(state.target, team, copy)
        return FactoredState(team, target, opt, updates, known), Report(metrics | found | {"critic_gradient": norm})

    def targets(self, state: FactoredState, steps: Transition) -> Float[Array, "time row"]:
        """What the team's value of each step is fitted to; the next step's choices are the best of each agent."""
        _, following = valued(state.target, steps)
        choosing = valued(state.team, steps)[1] if self.double else following

        def best(name: str) -> Array:
            chooser = masked(choosing.values[name], view_of(steps.next_view, name).legal)
            return jax.vmap(jax.vmap(jax.vmap(double_q)))(chooser, following.values[name])

        value = mixed(state.target, {name: best(name) for name in following.values}, following)
        return steps.reward + self.discount * jnp.where(steps.terminated, 0.0, value)

    def _adam(self) -> Adam:
        return Adam(self.learning_rate, self.max_gradient_norm)


def _best(values: Array, view: View, name: str) -> Int[Array, "time row agent"]:
    return jnp.argmax(masked(values, view_of(view, name).legal), axis=-1)
