r"""Adversarial cheap talk: a message is appended to an agent's observation, and its sender can be learned.

.. math:: m = scale \cdot \tanh(W_2 \tanh(W_1 o + b_1) + b_2)

The message :math:`m` is a deterministic function of the observation :math:`o`: it hides nothing, adds no noise, and
neither dynamics nor rewards depend on it. Its parameters are parameters of the episode (:class:`CheapTalk`).

In the meta-training environment (:class:`MetaTrainingEnv`) one step trains a whole learner; actions are parameters of a
sender of messages to it. In this way an outer learner (``es``) finds which messages help or harm an inner learner that
it cannot influence otherwise. Every episode trains a new learner, with random streams of its own.

Source: Lu et al., 2022 (arXiv:2211.11030).
"""

from __future__ import annotations

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.contracts import Environment, Method, Mode
from thespis.core.errors import UserError
from thespis.core.feeds import RolloutFeed, require_batches_of
from thespis.core.records import EnvSpec, TimeStep, Transition
from thespis.core.spaces import Box, unscale_action
from thespis.runtime.keys import fold, indexed_keys


class CheapTalkParams(eqx.Module):
    """Parameters of one episode: the sender's, as one vector, and the environment's own."""

    sender_params: Float[Array, "*row parameter"]
    env_params: PyTree


class CheapTalkState(eqx.Module):
    """State of one episode, and its sender's parameters."""

    env_state: PyTree
    sender_params: Float[Array, "*row parameter"]


class CheapTalk(eqx.Module):
    """``env`` whose observations, one vector, end with a message of ``message_size`` numbers within ``message_scale``.

    With all parameters 0, as in ``spec.params``, the message is 0. Parameters drawn from a standard normal distribution
    give a network at its usual scale: its weights are divided by the square root of the number of inputs.

    Raises:
        UserError: on access to ``spec``, if the observation is not one vector.
    """

    env: Environment
    message_size: int = eqx.field(static=True, default=2)
    hidden_size: int = eqx.field(static=True, default=8)
    message_scale: float = eqx.field(static=True, default=2 * math.pi)

    @property
    def num_params(self) -> int:
        """Number of the sender's parameters."""
        return self.hidden_size * (self._observation_size + 1) + self.message_size * (self.hidden_size + 1)

    @property
    def _observation_size(self) -> int:
        space = self.env.spec.observation_space
        if not isinstance(space, Box) or len(space.shape) != 1:
            raise UserError(
                f"cheap talk is appended to one vector, and {self.env.spec.name} has observation space {space}"
            )
        return space.shape[0]

    @property
    def spec(self) -> EnvSpec:
        """The environment's spec with a longer observation; the default sender's message is 0."""
        spec = self.env.spec
        params = CheapTalkParams(jnp.zeros(self.num_params), spec.params)
        observation_space = Box((self._observation_size + self.message_size,))
        return dataclasses.replace(
            spec, name=f"{spec.name} with talk", observation_space=observation_space, params=params
        )

    def message(
        self, sender_params: Float[Array, " parameter"], observation: Float[Array, " observation"]
    ) -> Float[Array, " message_size"]:
        """The sender's message for an observation."""
        size, hidden = self._observation_size, self.hidden_size
        w1, b1, w2, b2 = jnp.split(
            sender_params, [hidden * size, hidden * (size + 1), self.num_params - self.message_size]
        )
        features = jnp.tanh(w1.reshape(hidden, size) @ observation / size**0.5 + b1)
        return self.message_scale * jnp.tanh(w2.reshape(self.message_size, hidden) @ features / hidden**0.5 + b2)

    def reset(self, params: CheapTalkParams, key: Key[Array, ""]) -> tuple[CheapTalkState, TimeStep]:
        """Start an episode and return its state and first time step."""
        state, step = self.env.reset(params.env_params, key)
        return CheapTalkState(state, params.sender_params), self._append_message(params.sender_params, step)

    def step(self, state: CheapTalkState, action: PyTree, key: Key[Array, ""]) -> tuple[CheapTalkState, TimeStep]:
        """One step of the environment, with the message appended."""
        env_state, step = self.env.step(state.env_state, action, key)
        return CheapTalkState(env_state, state.sender_params), self._append_message(state.sender_params, step)

    def _append_message(self, speaker: Float[Array, " parameter"], step: TimeStep) -> TimeStep:
        observation = jnp.concatenate([step.observation, self.message(speaker, step.observation)])
        return eqx.tree_at(lambda s: s.observation, step, observation)


class MetaTrainingEnv(eqx.Module):
    """``learner``, an on-policy method, makes ``num_updates`` updates in ``env``; actions are the sender's parameters.

    The reward is ``reward_sign`` times the learner's mean return over its whole training: 1 rewards help, -1 harm.
    """

    env: CheapTalk
    learner: Method
    num_updates: int = eqx.field(static=True, default=16)
    reward_sign: float = eqx.field(static=True, default=-1.0)

    @property
    def spec(self) -> EnvSpec:
        """The observation is constant; an action holds a sender's parameters."""
        name = f"trainings of {self.learner.name} in {self.env.spec.name}"
        return EnvSpec(name, Box((1,), 0.0, 1.0), Box((self.env.num_params,)), time_limit=1)

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[Float[Array, ""], TimeStep]:
        """Starts an episode; nothing is trained yet."""
        return jnp.zeros(()), self._time_step(jnp.zeros(()), jnp.zeros((), bool))

    def step(self, state: Float[Array, ""], action: Float[Array, " parameter"], key: Key[Array, ""]):
        """Trains a learner from start to end."""
        return state, self._time_step(
            self.reward_sign * jnp.mean(self.training_returns(action, key)), jnp.ones((), bool)
        )

    def _time_step(self, reward: Float[Array, ""], over: Array) -> TimeStep:
        return TimeStep(jnp.zeros(1), reward, over, jnp.zeros((), bool))

    def training_returns(
        self, sender_params: Float[Array, " parameter"], key: Key[Array, ""]
    ) -> Float[Array, " update"]:
        """Mean return per episode of a new learner during the rollout for each of its updates.

        An episode that continues from one rollout to the next counts where it ends and where it continues.
        """
        env, method, spec = self.env, self.learner, self.env.spec
        feed = method.feed
        require_batches_of("a learner that is trained in an environment", feed, RolloutFeed)
        store = feed.make_store(self.num_updates * feed.collect_steps * feed.num_envs).for_env(spec)
        params = jax.tree.map(
            lambda x: jnp.broadcast_to(x, (feed.num_envs, *jnp.shape(x))),
            CheapTalkParams(sender_params, spec.params.env_params),
        )
        reset, step = jax.vmap(env.reset), jax.vmap(env.step)

        def tick(carry: PyTree, t: Array) -> tuple[PyTree, Transition]:
            policy, (state, view, memory, first) = carry
            memory = _tree_where(first, method.init_memory(policy, feed.num_envs), memory)
            action, memory, extras = method.act(policy, memory, view, fold(key, "act", t))
            env_action = unscale_action(spec.action_space, action)
            state, time_step = step(state, env_action, indexed_keys(fold(key, "step", t), feed.num_envs))
            outcome = time_step.reward, time_step.terminated, time_step.truncated, time_step.view
            transition = Transition(view, action, *outcome, first, extras)
            new_state, first_step = reset(params, indexed_keys(fold(key, "reset", t + 1), feed.num_envs))
            state, view = _tree_where(transition.done, (new_state, first_step.view), (state, time_step.view))
            return (policy, (state, view, memory, transition.done)), transition

        def update(carry: PyTree, index: Array) -> tuple[PyTree, Array]:
            learner_state, rollout_state = carry
            policy = method.policy(learner_state, Mode.EXPLORE)
            ticks = index * feed.collect_steps + jnp.arange(feed.collect_steps)
            (_, next_rollout_state), steps = jax.lax.scan(tick, (policy, rollout_state), ticks)
            num_written = (index + 1) * feed.collect_steps
            sample_key = fold(key, "sample", index)
            batch = store.sample((), steps, rollout_state[2], num_written, index, sample_key, ())
            learner_state, _ = method.update(learner_state, batch, fold(key, "update", index))
            return (learner_state, next_rollout_state), jnp.sum(steps.reward) / (jnp.sum(steps.done) + feed.num_envs)

        learner_state = method.init(spec, fold(key, "init"))
        state, first_step = reset(params, indexed_keys(fold(key, "reset", 0), feed.num_envs))
        memory = method.init_memory(method.policy(learner_state, Mode.EXPLORE), feed.num_envs)
        carry = learner_state, (state, first_step.view, memory, jnp.ones(feed.num_envs, bool))
        return jax.lax.scan(update, carry, jnp.arange(self.num_updates))[1]


def _tree_where(flag: Array, yes: PyTree, no: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: jnp.where(flag.reshape(-1, *(1,) * (a.ndim - 1)), a, b), yes, no)
