"""Latent-mode actor-critic: each episode is played in one of several modes, and actions give information about it.

The mode is part of what actor and critic observe. The mutual information between actions and modes
(:func:`mode_information`) is a weighted bonus added to the reward.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.core.contracts import Mode
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Report, Transition, View
from thespis.core.spaces import Discrete, dict_space
from thespis.data.feeds import Rollouts
from thespis.learners.off_policy.temperature import Temperature
from thespis.learners.on_policy.actor_critic import OnPolicyActor
from thespis.objectives.statistics import masked_mean
from thespis.runtime.keys import fold, indexed_keys


def mode_information(log_prob: Float[Array, " k"], mode: Int[Array, ""]) -> Float[Array, ""]:
    r"""Information in nats that an action carries about its mode :math:`z`, one of ``k`` equally likely ones.

    .. math:: \log \pi(a|z) - \log \frac{1}{k} \sum_{z'} \pi(a|z') = \log p(z|a) - \log p(z)

    It is at most :math:`\log k`. ``log_prob`` is the action's log-probability in every mode. The mean over actions and
    modes is their mutual information.
    """
    return log_prob[mode] - jax.nn.logsumexp(log_prob) + jnp.log(log_prob.shape[0])


UNASSIGNED = -1


class LatentModeState(eqx.Module):
    """State of the wrapped method, and of the weight of the information bonus."""

    method_state: PyTree
    mi_coef_state: PyTree


class LatentModeMethod(eqx.Module):
    """Base that wraps an on-policy ``method`` with latent modes. Its critic sees what its actor sees."""

    method: eqx.AbstractVar[Any]
    mi_coef: eqx.AbstractVar[Temperature]
    num_modes: eqx.AbstractVar[int]

    name: eqx.AbstractClassVar[str]
    citations: eqx.AbstractClassVar[tuple[Citation, ...]]
    details: eqx.AbstractClassVar[tuple[str, ...]]

    @property
    def feed(self) -> Rollouts:
        """The feed of the wrapped method."""
        return self.method.feed

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> LatentModeState:
        """Fresh state of the wrapped method, for the environment with the mode added to its observation."""
        observation_space = dict_space(mode=Discrete(self.num_modes), own=spec.observation_space)
        method_state = self.method.init(dataclasses.replace(spec, observation_space=observation_space), key)
        return LatentModeState(method_state, self.mi_coef.init(spec))

    def policy(self, state: LatentModeState, mode: Mode) -> OnPolicyActor:
        """The policy of the wrapped method, which covers all modes."""
        return self.method.policy(state.method_state, mode)

    def init_memory(self, policy: OnPolicyActor, n: int) -> tuple[Int[Array, " n"], Any]:
        """No mode assigned yet, and the memories of the wrapped method."""
        return jnp.full(n, UNASSIGNED, "int32"), self.method.init_memory(policy, n)

    def act(self, policy: OnPolicyActor, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """Act as the wrapped method in the mode of the episode.

        The mode is sampled uniformly at the first step; in ``Mode.EXPLOIT`` it is the one with the highest value.
        """
        fresh = (
            self._best_mode(policy, memory[1], view)
            if policy.mode is Mode.EXPLOIT
            else self._sample_modes(memory[0], key)
        )
        mode = jnp.where(memory[0] == UNASSIGNED, fresh, memory[0])
        action, inner, extras = self.method.act(policy, memory[1], _with_mode(mode, view), key)
        return action, (mode, inner), {**extras, "mode": mode}

    def action_probs(self, policy: OnPolicyActor, memory: Any, view: View) -> Float[Array, "row n"]:
        """Probability of every action; the mean over modes where none is assigned yet.

        Raises ``UserError`` unless an action is one discrete choice.
        """
        unassigned = (memory[0] == UNASSIGNED)[:, None]
        every = jax.vmap(
            lambda z: self.method.action_probs(policy, memory[1], _with_mode(jnp.full_like(memory[0], z), view))
        )(jnp.arange(self.num_modes, dtype="int32"))
        if policy.mode is Mode.EXPLOIT:
            initial_probs = jax.nn.one_hot(self._best_mode(policy, memory[1], view), self.num_modes)
        else:
            initial_probs = jnp.full((len(unassigned), self.num_modes), 1 / self.num_modes)
        return jnp.einsum(
            "zra,rz->ra", every, jnp.where(unassigned, initial_probs, jax.nn.one_hot(memory[0], self.num_modes))
        )

    def judge(self, state: LatentModeState, episode: Transition) -> Critique:
        """No critique: values include the information bonus."""
        return Critique()

    def update(self, state: LatentModeState, batch: Batch, key: Key[Array, ""]) -> tuple[LatentModeState, Report]:
        """Update the wrapped method on reward plus information bonus, then the weight of the bonus."""
        steps, mode = batch.steps, batch.steps.extras["mode"]
        valid = batch.mask if steps.view.alive is None else batch.mask & steps.view.alive
        mode_bonus = jnp.where(valid, self.mode_information(self.policy(state, Mode.EXPLORE), batch), 0.0)
        weight, information = self.mi_coef.alpha(state.mi_coef_state), masked_mean(mode_bonus, valid)
        views = _with_mode(mode, steps.view), _with_mode(mode, steps.next_view)
        rewarded_steps = eqx.tree_at(
            lambda s: (s.view, s.next_view, s.reward), steps, (*views, steps.reward + weight * mode_bonus)
        )
        method_state, report = self.method.update(
            state.method_state, Batch(rewarded_steps, batch.mask, batch.memory[1], batch.update_index), key
        )
        metrics = {**report.metrics, "information": information, "information_weight": weight}
        return LatentModeState(method_state, self.mi_coef.update(state.mi_coef_state, information)), Report(metrics)

    def _sample_modes(self, mode: Int[Array, " row"], key: Key[Array, ""]) -> Int[Array, " row"]:
        keys = indexed_keys(fold(key, "mode"), len(mode))
        return jax.vmap(lambda k: jax.random.randint(k, (), 0, self.num_modes, "int32"))(keys)

    def _best_mode(self, policy: OnPolicyActor, memory: Any, view: View) -> Int[Array, " row"]:
        def value(z: Int[Array, ""]) -> Float[Array, " row"]:
            observation = _with_mode(jnp.full(len(jax.tree.leaves(view.observation)[0]), z), view).observation
            normalized = jax.vmap(lambda x: policy.obs_normalizer.normalize(policy.obs_normalizer_state, x))(
                observation
            )
            return policy.network.next_values(*jax.tree.map(lambda x: x[None], (memory[1], normalized)))[0]

        every = jax.vmap(value)(jnp.arange(self.num_modes, dtype="int32"))
        return jnp.argmax(every, axis=0).astype("int32")

    def mode_information(self, policy: OnPolicyActor, batch: Batch) -> Float[Array, "time row"]:
        """Information in nats that each action gives about its mode."""
        steps, mode = batch.steps, batch.steps.extras["mode"]

        def in_mode(z: int) -> Float[Array, "time row"]:
            view = _with_mode(jnp.full_like(mode, z), steps.view)
            scaled = jax.vmap(jax.vmap(lambda o: policy.obs_normalizer.normalize(policy.obs_normalizer_state, o)))(
                view.observation
            )
            distributions = policy.network.distributions(
                batch.memory[1], View(scaled, view.action_mask), steps.is_first
            )
            return jax.vmap(jax.vmap(lambda p, a: p.log_prob(a)))(distributions, steps.action)

        return jax.vmap(jax.vmap(mode_information))(
            jnp.stack([in_mode(z) for z in range(self.num_modes)], axis=-1), mode
        )


def _with_mode(mode: Int[Array, "*axes"], view: View) -> View:
    """A view whose observation holds the mode and the original observation."""
    return View({"mode": mode, "own": view.observation}, view.action_mask, view.alive, view.game_state)
