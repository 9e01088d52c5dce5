"""Value decomposition (VDN, QMIX): per-agent Q-values mixed into one team value, which is learned.

A team has the Q-networks of its agents and a mixer, whose values are computed over windows of steps.
:class:`ValueDecomposition` is the base of the methods: a concrete method supplies its mixer; nothing here is
overridden.
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.actors.epsilon_greedy import epsilon_greedy
from thespis.actors.policy_heads import vmap_act
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.feeds import WindowFeed
from thespis.core.records import Batch, Critique, EnvSpec, Number, Report, Transition, View
from thespis.core.spaces import AgentGroup, Discrete
from thespis.critics.critic_inputs import joint_observation, joint_space, with_agent_id
from thespis.critics.mixers import LinearUtility, Mixer, MixerInputs, MixerNetwork, Utility, UtilityNetwork
from thespis.data.feeds import Replay
from thespis.learners.multi_agent.independent_learners import group_view, require_multi_agent
from thespis.learners.multi_agent.role_contrast import NO_LOSS, AuxiliaryLoss
from thespis.learners.off_policy.discrete_q import mask_illegal
from thespis.learners.optim.optimizers import (
    LearningRate,
    Optimizer,
    OptimizerFactory,
    build_optimizer,
    gradient_step,
    polyak_update,
)
from thespis.nets.body import unroll
from thespis.nets.recurrent import RecurrentCore
from thespis.objectives.statistics import masked_mean
from thespis.objectives.value_losses import double_q_value, huber_loss
from thespis.runtime.keys import fold, indexed_keys

GroupQValues = dict[str, Array]
"""Q-values by group: of chosen actions ``[time, row, agent]``, or of all actions ``[time, row, agent, n]``.

Groups differ in their numbers of agents and of actions.
"""


class TeamQNetwork(eqx.Module):
    """One Q-network for each group, and a mixer of their values."""

    agent_networks: dict[str, UtilityNetwork]
    mixer: MixerNetwork
    groups: tuple[AgentGroup, ...] = eqx.field(static=True)

    def q_values(self, group_name: str, memory: Any, observation: PyTree) -> tuple[Float[Array, " n"], Any]:
        """Q-values of all actions of one agent of a group, and its memory afterwards."""
        network: Any = self.agent_networks[group_name]
        features, memory = network.body(memory, network.body_input(observation))
        return network.q_values(features, observation), memory

    def init_memory(self, n: int) -> dict[str, PyTree]:
        """Recurrent memories of ``n`` fresh episodes, ``[n, agent, ...]``."""
        return {
            g.name: jax.tree.map(
                lambda x, g=g: _split_agents(x, g), self.agent_networks[g.name].body.init_memory(n * g.num_agents)
            )
            for g in self.groups
        }


class TeamQValues(eqx.Module):
    """Q-values of all actions at all steps of a window, and the inputs of the mixer."""

    q_values: GroupQValues
    aux_outputs: dict[str, dict[str, Array]]
    """Auxiliary outputs of the agents' networks, by group, ``[time, row, agent, ...]``."""
    mixing_context: PyTree
    """Context of the mixer, ``[time, row, ...]``."""
    alive: dict[str, Bool[Array, "time row agent"]]


def team_q_values(network: TeamQNetwork, steps: Transition) -> tuple[TeamQValues, TeamQValues]:
    """Q-values of all actions at each step and the next, from fresh memories at the start of the window."""
    memories, outputs, next_outputs = network.init_memory(steps.reward.shape[1]), {}, {}
    for group in network.groups:

        def evaluate_agent(
            memory: Any, seen: PyTree, following: PyTree, first: Bool[Array, "time row"], name: str = group.name
        ):
            agent_network: Any = network.agent_networks[name]
            features, memories = unroll(agent_network.body, memory, agent_network.body_input(seen), first)

            def next_q_values(memory: Any, seen: PyTree) -> tuple[Array, dict[str, Array]]:
                features, _ = agent_network.body(memory, agent_network.body_input(seen))
                return agent_network.q_values(features, seen), agent_network.aux_outputs(features)

            outputs = jax.vmap(jax.vmap(lambda f, o: (agent_network.q_values(f, o), agent_network.aux_outputs(f))))(
                features, seen
            )
            return outputs, jax.vmap(jax.vmap(next_q_values))(memories, following)

        observed, following = (_agent_inputs(view, group, steps.reward.shape) for view in (steps.view, steps.next_view))
        inputs = memories[group.name], observed, following, steps.is_first
        outputs[group.name], next_outputs[group.name] = jax.vmap(evaluate_agent, in_axes=(1, 2, 2, None), out_axes=2)(
            *inputs
        )
    mixer_inputs = _mixer_inputs(network, outputs, steps.view, steps.privileged)
    next_mixer_inputs = _mixer_inputs(network, next_outputs, steps.next_view, steps.next_privileged)
    contexts = network.mixer.mixing_context(steps.is_first, mixer_inputs, next_mixer_inputs)
    parts = zip((outputs, next_outputs), (mixer_inputs, next_mixer_inputs), contexts, strict=True)
    q_values, next_q_values = (
        TeamQValues(
            {name: values[0] for name, values in group_outputs.items()},
            scene_inputs.aux_outputs,
            context,
            scene_inputs.alive,
        )
        for group_outputs, scene_inputs, context in parts
    )
    return q_values, next_q_values


def chosen_q_values(q_values: GroupQValues, actions: dict[str, Array]) -> GroupQValues:
    """Q-values of the actions taken, ``actions`` being ``[time, row, agent]``."""
    return {name: jnp.take_along_axis(x, actions[name][..., None], axis=-1)[..., 0] for name, x in q_values.items()}


def mix_q_values(network: TeamQNetwork, q_values: GroupQValues, team_q_values: TeamQValues) -> Float[Array, "time row"]:
    """Team value of ``q_values`` ``[time, row, agent]`` in the context of ``team_q_values``.

    Agents that do not decide have the value 0.
    """
    values = [jnp.where(team_q_values.alive[g.name], q_values[g.name], 0.0) for g in network.groups]
    return jax.vmap(jax.vmap(network.mixer))(jnp.concatenate(values, axis=-1), team_q_values.mixing_context)


def _mixer_inputs(
    network: TeamQNetwork, group_outputs: dict[str, tuple[Array, dict[str, Array]]], view: View, privileged: PyTree
) -> MixerInputs:
    aux_outputs = {name: aux for name, (_, aux) in group_outputs.items()}
    return MixerInputs(
        joint_observation(network.groups, view, privileged),
        aux_outputs,
        {g.name: view.alive[g.name] for g in network.groups},
    )


def _agent_inputs(view: View, group: AgentGroup, axes: tuple[int, ...]) -> PyTree:
    """What the networks of a group observe: observations and agents' indices, ``[*axes, agent, ...]``."""
    agent_ids = jnp.broadcast_to(jnp.arange(group.num_agents, dtype="int32"), (*axes, group.num_agents))
    return {"own": view.observation[group.name], "which": agent_ids}


def _split_agents(x: Array, group: AgentGroup) -> Array:
    return x.reshape(-1, group.num_agents, *x.shape[1:])


class ValueDecompositionState(eqx.Module):
    """State of value decomposition: team network, target network, optimizer and auxiliary loss."""

    network: TeamQNetwork
    target_network: TeamQNetwork
    opt_state: PyTree
    num_updates: Int[Array, ""]
    auxiliary_state: PyTree
    """State of the auxiliary loss."""


class ValueDecompositionPolicy(eqx.Module):
    """Epsilon-greedy policy of a team: the agents' networks and the present epsilon."""

    network: TeamQNetwork
    epsilon: Float[Array, ""]


class ValueDecomposition(eqx.Module):
    """Value decomposition for agents with one discrete action each and a shared reward.

    Every step of a window is fitted to a one-step TD target.
    """

    name: eqx.AbstractClassVar[str]
    mixer: eqx.AbstractVar[Mixer]

    learning_rate: LearningRate = 5e-4
    """Step size."""
    optimizer: OptimizerFactory | None = None
    """Optimizer: None (Adam) or OptaxOptimizer (any of optax)."""
    discount: Number = 0.99
    """Discount per step, in [0, 1]."""
    max_grad_norm: Number = 10.0
    """Global norm to which the gradient is clipped."""
    initial_epsilon: Number = 1.0
    """Probability of a random action, for each agent, before the first update."""
    final_epsilon: Number = 0.05
    """Probability of a random action after ``epsilon_decay_updates`` updates."""
    epsilon_decay_updates: Number = 10_000.0
    """Updates over which epsilon falls linearly."""
    huber_delta: Number = 1e6
    """Error, in units of reward, beyond which the loss is linear; a large one squares every error."""
    double_q: bool = eqx.field(static=True, default=True)
    """Double Q-learning: choose the next actions by the online networks."""
    target_update_interval: int = eqx.field(static=True, default=200)
    """Updates between copies of the networks to the target networks."""
    hidden_sizes: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    """Units of each hidden layer of the agents' networks."""
    utility_network: Utility = LinearUtility()
    """Q-network of an agent: LinearUtility, DotProductUtility (action representations), RoleUtility (roles) or your own
    module:Class."""
    auxiliary_loss: AuxiliaryLoss | None = None
    """Auxiliary loss of the agents' networks: None, RoleContrast where they have roles, or your own module:Class."""
    memory: RecurrentCore | None = eqx.field(static=True, default=None)
    """Recurrent core after the hidden layers: None, GRU, ELSTM or your own module:Class, with windows
    (feed.sequence_length) of several steps."""
    feed: WindowFeed = eqx.field(
        static=True, default=Replay(batch_size=128, learning_starts=1_000, update_interval=2, num_envs=8)
    )
    """Replay: buffer_size, batch_size, learning_starts, update_interval, num_updates, sequence_length."""

    multi_agent: ClassVar[bool] = True

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> ValueDecompositionState:
        """Fresh networks and target networks.

        Raises ``UserError`` unless all agents are a team whose members have one discrete action each.
        """
        require_multi_agent(spec)
        if spec.game is not None:
            raise UserError(f"{self.name} is for teams with a shared reward, but {spec.name} is a game: use ippo")

        def utility(group: AgentGroup) -> UtilityNetwork:
            single_spec = with_agent_id(spec, group)
            if not isinstance(single_spec.action_space, Discrete):
                raise UserError(
                    f"{self.name} needs one discrete choice, {single_spec.name} has {single_spec.action_space}: "
                    "use mappo or masac"
                )
            return self.utility_network.build(single_spec, self.hidden_sizes, self.memory, fold(key, group.name))

        num_agents = sum(group.num_agents for group in spec.groups)
        mixer = self.mixer.build(joint_space(spec), num_agents, self.utility_network.role_size, fold(key, "mixer"))
        team = TeamQNetwork({group.name: utility(group) for group in spec.groups}, mixer, spec.groups)
        auxiliary_state = (self.auxiliary_loss or NO_LOSS).init(
            team.agent_networks, self.utility_network.role_size, fold(key, "auxiliary")
        )
        return ValueDecompositionState(
            team, team, self._make_optimizer().init(team), jnp.zeros((), "int32"), auxiliary_state
        )

    def policy(self, state: ValueDecompositionState, mode: Mode) -> ValueDecompositionPolicy:
        """Networks and epsilon: decayed in ``EXPLORE`` mode, ``final_epsilon`` in ``SAMPLE``, 0 in ``EXPLOIT``."""
        progress = jnp.clip(state.num_updates / self.epsilon_decay_updates, 0.0, 1.0)
        decayed = self.initial_epsilon + progress * (self.final_epsilon - self.initial_epsilon)
        epsilon = {Mode.EXPLORE: decayed, Mode.SAMPLE: self.final_epsilon, Mode.EXPLOIT: 0.0}[mode]
        return ValueDecompositionPolicy(
            eqx.tree_at(lambda t: t.mixer, state.network, ()), jnp.asarray(epsilon, "float32")
        )

    def init_memory(self, policy: ValueDecompositionPolicy, n: int) -> dict[str, PyTree]:
        """Recurrent states by group, ``[n, agent, ...]``."""
        return policy.network.init_memory(n)

    def act(
        self, policy: ValueDecompositionPolicy, memory: Any, view: View, key: Key[Array, ""]
    ) -> tuple[PyTree, Any, PyTree]:
        """Epsilon-greedy action of each agent, among legal actions, ``[row, agent]``."""

        def group_act(group: AgentGroup, memory: Any, view: View, key: Key[Array, ""]) -> tuple[Array, Any]:
            def agent_act(memory, seen, legal, key):
                values, memory = policy.network.q_values(group.name, memory, seen)
                return epsilon_greedy(mask_illegal(values, legal), legal, policy.epsilon, key), memory

            observations = {"own": view.observation, "which": jnp.arange(group.num_agents, dtype="int32")}
            return jax.vmap(agent_act)(memory, observations, view.action_mask, indexed_keys(key, group.num_agents))

        results = {}
        for group in policy.network.groups:
            inputs = memory[group.name], group_view(view, group.name), fold(key, group.name)
            results[group.name] = vmap_act(lambda *row, group=group: group_act(group, *row), *inputs)
        action, memory = ({name: parts[i] for name, parts in results.items()} for i in range(2))
        return action, memory, ()

    def judge(self, state: ValueDecompositionState, episode: Transition) -> Critique:
        """Team value of the actions taken, and its advantage over the greedy ones; ``episode`` is ``[time]``."""
        steps = jax.tree.map(lambda x: x[:, None], episode)
        outputs, _ = team_q_values(state.network, steps)
        value = mix_q_values(state.network, chosen_q_values(outputs.q_values, steps.action), outputs)[:, 0]
        best = {name: _greedy_actions(x, steps.view, name) for name, x in outputs.q_values.items()}
        best_value = mix_q_values(state.network, chosen_q_values(outputs.q_values, best), outputs)[:, 0]
        return Critique(value=value, advantage=value - best_value, discount=self.discount)

    def update(
        self, state: ValueDecompositionState, batch: Batch, key: Key[Array, ""]
    ) -> tuple[ValueDecompositionState, Report]:
        """One gradient step of all networks and the mixer, or of what an auxiliary loss trains before.

        The target networks are copied every ``target_update_interval`` updates.
        """
        auxiliary_loss = self.auxiliary_loss
        if auxiliary_loss is None or not auxiliary_loss.num_pretraining_updates:
            return self._update_values(state, batch)

        def update_values(state: ValueDecompositionState) -> tuple[ValueDecompositionState, dict[str, Array]]:
            state, report = self._update_values(state, batch)
            return state, dict(report.metrics)

        is_early = batch.update_index < auxiliary_loss.num_pretraining_updates
        new_state, metrics = jax.lax.cond(is_early, lambda s: _pretrain(auxiliary_loss, s, batch), update_values, state)
        return new_state, Report(metrics)

    def _update_values(self, state: ValueDecompositionState, batch: Batch) -> tuple[ValueDecompositionState, Report]:
        """One gradient step of all networks and the mixer, and the update of the auxiliary loss."""
        steps = batch.steps
        td_target = jax.lax.stop_gradient(self.td_targets(state, steps))

        def loss(team: TeamQNetwork):
            outputs, _ = team_q_values(team, steps)
            value = mix_q_values(team, chosen_q_values(outputs.q_values, steps.action), outputs)
            total = masked_mean(huber_loss(value - td_target, self.huber_delta), batch.mask)
            return total, ({"critic_loss": total, "value": masked_mean(value, batch.mask)}, outputs.aux_outputs)

        team, opt, (metrics, aux_outputs), norm = gradient_step(
            self._make_optimizer(), loss, state.network, state.opt_state
        )
        num_updates = state.num_updates + 1
        num_earlier = 0 if self.auxiliary_loss is None else self.auxiliary_loss.num_pretraining_updates
        agent_networks, auxiliary_state, aux_metrics = (self.auxiliary_loss or NO_LOSS).update(
            team.agent_networks,
            state.auxiliary_state,
            aux_outputs,
            _alive_mask(batch),
            # update_index is the same for all seeds, so under vmap a step at some updates only stays a branch
            batch.update_index + 1 - num_earlier,
        )
        team = eqx.tree_at(lambda t: t.agent_networks, team, agent_networks)
        copy = (num_updates % self.target_update_interval == 0).astype("float32")
        target = polyak_update(state.target_network, team, copy)
        return ValueDecompositionState(team, target, opt, num_updates, auxiliary_state), Report(
            metrics | aux_metrics | {"critic_gradient": norm}
        )

    def td_targets(self, state: ValueDecompositionState, steps: Transition) -> Float[Array, "time row"]:
        """TD targets of the team's value at each step, with each agent's greedy next action."""
        _, target_outputs = team_q_values(state.target_network, steps)
        chooser_outputs = team_q_values(state.network, steps)[1] if self.double_q else target_outputs

        def best(name: str) -> Array:
            chooser = mask_illegal(chooser_outputs.q_values[name], group_view(steps.next_view, name).action_mask)
            return jax.vmap(jax.vmap(jax.vmap(double_q_value)))(chooser, target_outputs.q_values[name])

        value = mix_q_values(
            state.target_network, {name: best(name) for name in target_outputs.q_values}, target_outputs
        )
        return steps.reward + self.discount * jnp.where(steps.terminated, 0.0, value)

    def _make_optimizer(self) -> Optimizer:
        return build_optimizer(self.optimizer, self.learning_rate, self.max_grad_norm)


def _pretrain(
    auxiliary_loss: AuxiliaryLoss, state: ValueDecompositionState, batch: Batch
) -> tuple[ValueDecompositionState, dict[str, Array]]:
    """One update of the auxiliary loss alone; target networks are copies, and metrics of the values are 0."""
    steps, team = batch.steps, state.network

    def compute_outputs(agent_networks: dict[str, Any]) -> dict[str, dict[str, Array]]:
        return team_q_values(eqx.tree_at(lambda t: t.agent_networks, team, agent_networks), steps)[0].aux_outputs

    agent_networks, auxiliary_state, metrics = auxiliary_loss.pretrain(
        team.agent_networks,
        state.auxiliary_state,
        compute_outputs,
        {group.name: _agent_inputs(steps.next_view, group, steps.reward.shape) for group in team.groups},
        _alive_mask(batch),
        batch.update_index,
    )
    team = eqx.tree_at(lambda t: t.agent_networks, team, agent_networks)
    zeros = {name: jnp.zeros(()) for name in ("critic_loss", "value", "critic_gradient")}
    return ValueDecompositionState(team, team, state.opt_state, state.num_updates, auxiliary_state), zeros | metrics


def _alive_mask(batch: Batch) -> dict[str, Bool[Array, "time row agent"]]:
    """Agents that are alive at steps of the batch, by group."""
    return {name: alive & batch.mask[..., None] for name, alive in batch.steps.view.alive.items()}


def _greedy_actions(q_values: Array, view: View, group_name: str) -> Int[Array, "time row agent"]:
    """Best legal action of each agent of a group."""
    return jnp.argmax(mask_illegal(q_values, group_view(view, group_name).action_mask), axis=-1)
