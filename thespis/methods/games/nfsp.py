"""Neural fictitious self-play: each player learns a best response to the average policies, and the average of its own.

Every player has two networks. The best response learns against the others as they currently play. The average policy is
fitted to all moves that the best response has ever made, so it is the average of its policies, which in fictitious play
approaches an equilibrium. An episode is played by the best response with probability ``anticipatory_param``, else by
the average policy, which is also what is evaluated.

Source: Heinrich & Silver, 2016, algorithm 1.

Differs from their code: best responses are learned by PPO from the episodes that they played, instead of by DQN from a
replay buffer of all episodes; the average policy is fitted by Adam.
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.actors.episode_sampling import EpisodeBernoulli
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.feeds import Feed
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Number, Report, Transition, View
from thespis.core.spaces import Discrete, zero_value
from thespis.data.feeds import Rollouts
from thespis.data.reservoir import ReservoirBuffer
from thespis.learners.offline.behavior_cloning import BCPolicy, BCState, BehaviorCloning
from thespis.methods.online.ppo import PPO


class NFSPState(eqx.Module):
    """Training state of NFSP: best response, average policy and the reservoir of moves."""

    best_response: PyTree
    average_policy: BCState
    reservoir: ReservoirBuffer


class NFSPPolicy(eqx.Module):
    """Acting policy: both policies, and the probability that the best response plays an episode."""

    best_response: PyTree
    average_policy: BCPolicy
    anticipatory_param: Float[Array, ""]


class NFSP(eqx.Module):
    """Neural fictitious self-play: best responses by PPO and their average by supervised learning; discrete actions."""

    method: PPO = PPO(
        discount=1.0, ent_coef=0.01, num_epochs=4, minibatch_size=256, feed=Rollouts(num_steps=32, num_envs=64)
    )
    """PPO that learns the best response."""
    average_policy: BehaviorCloning = BehaviorCloning(hidden_sizes=(64, 64))
    """Behavior cloning that fits the average policy."""
    anticipatory_param: Number = 0.25
    """Anticipatory parameter: probability that the best response plays an episode, in (0, 1]."""
    reservoir_size: int = eqx.field(static=True, default=200_000)
    """Size of the reservoir of moves that the average policy is fitted to."""
    average_batch_size: int = eqx.field(static=True, default=256)
    """Moves per gradient step of the average policy."""
    num_average_updates: int = eqx.field(static=True, default=8)
    """Gradient steps of the average policy after each rollout."""

    name: ClassVar[str] = "nfsp"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "Deep Reinforcement Learning from Self-Play in Imperfect-Information Games",
            "Heinrich and Silver",
            2016,
            "arXiv:1603.01121",
        ),
        *PPO.citations,
    )
    details: ClassVar[tuple[str, ...]] = (
        *PPO.details,
        "a reservoir of all moves of best responses; the average policy is fitted by maximum likelihood",
        "best responses learn from the episodes that they played",
    )

    @property
    def feed(self) -> Feed:
        """Feed of the best response's PPO."""
        return self.method.feed

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> NFSPState:
        """Initialize both networks and the reservoir. Raises ``UserError`` unless an action is one discrete choice."""
        if not isinstance(spec.action_space, Discrete):
            raise UserError(f"{spec.name} is not a game of discrete actions: use ippo")
        best_key, average_key = jax.random.split(key)
        legal = jnp.zeros((self.reservoir_size, spec.action_space.n), bool) if spec.has_action_mask else None
        views = View(jax.tree.map(jnp.asarray, zero_value(spec.observation_space, (self.reservoir_size,))), legal)
        items = (views, jnp.zeros(self.reservoir_size, "int32"))
        average = self.average_policy.init(spec, average_key)
        return NFSPState(self.method.init(spec, best_key), average, ReservoirBuffer(items, jnp.zeros((), "int32")))

    def policy(self, state: NFSPState, mode: Mode) -> NFSPPolicy | BCPolicy:
        """Both policies in explore mode, else the average policy."""
        average = self.average_policy.policy(state.average_policy, mode)
        if mode is not Mode.EXPLORE:
            return average
        return NFSPPolicy(
            self.method.policy(state.best_response, mode), average, jnp.asarray(self.anticipatory_param, "float32")
        )

    def init_memory(self, policy: NFSPPolicy | BCPolicy, n: int) -> tuple[Any, ...]:
        """Which policy plays each row's episode, and the best response's memory."""
        return (
            ()
            if isinstance(policy, BCPolicy)
            else (EpisodeBernoulli.init(n), self.method.init_memory(policy.best_response, n))
        )

    def act(
        self, policy: NFSPPolicy | BCPolicy, memory: Any, view: View, key: Key[Array, ""]
    ) -> tuple[Any, Any, PyTree]:
        """Action of the policy that plays the episode."""
        if isinstance(policy, BCPolicy):
            return self.average_policy.act(policy, (), view, key)
        selector_key, best_key, average_key = jax.random.split(key, 3)
        selector = memory[0].sample(policy.anticipatory_param, selector_key)
        best_action, best_memory, extras = self.method.act(policy.best_response, memory[1], view, best_key)
        average_action, _, _ = self.average_policy.act(policy.average_policy, (), view, average_key)
        return (
            jnp.where(selector.selected, best_action, average_action),
            (selector, best_memory),
            {"best": selector.selected, "own": extras},
        )

    def action_probs(self, policy: BCPolicy, memory: Any, view: View) -> Float[Array, "row n"]:
        """Action probabilities of the average policy."""
        return self.average_policy.action_probs(policy, (), view)

    def judge(self, state: NFSPState, episode: Transition) -> Critique:
        """Empty critique: the critic evaluates best responses, but the average policy plays."""
        return Critique()

    def update(self, state: NFSPState, batch: Batch, key: Key[Array, ""]) -> tuple[NFSPState, Report]:
        """Update the best response on its own episodes, add its moves to the reservoir, and fit the average policy."""
        best_key, add_key, fit_key = jax.random.split(key, 3)
        view, extras = batch.steps.view, batch.steps.extras
        acting: Any = extras["best"] if view.alive is None else extras["best"] & view.alive
        own_view = View(view.observation, view.action_mask, acting)
        steps = eqx.tree_at(
            lambda s: (s.view, s.extras), batch.steps, (own_view, extras["own"]), is_leaf=lambda x: x is None
        )
        best_batch = Batch(steps, batch.mask, batch.memory[1], batch.update_index)
        best, report = self.method.update(state.best_response, best_batch, best_key)
        moves = (View(view.observation, view.action_mask), batch.steps.action)
        flattened, keep = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (moves, acting & batch.mask))
        reservoir = state.reservoir.add(flattened, keep, add_key)

        def fit(average: BCState, key: Array) -> tuple[BCState, Array]:
            sampled_view, action = jax.tree.map(lambda x: x[None], reservoir.sample(key, self.average_batch_size))
            average, report = self.average_policy.update(
                average, _as_logged_batch(sampled_view, action, batch.update_index), key
            )
            return average, report.metrics["negative_log_likelihood"]

        average, loss = jax.lax.scan(fit, state.average_policy, jax.random.split(fit_key, self.num_average_updates))
        not_empty = reservoir.num_seen > 0
        average = jax.tree.map(lambda new, old: jnp.where(not_empty, new, old), average, state.average_policy)
        return NFSPState(best, average, reservoir), Report({**report.metrics, "average_loss": loss[-1]})


def _as_logged_batch(view: View, action: Int[Array, "time row"], index: Array) -> Batch:
    """Moves as a batch of logged transitions for behavior cloning."""
    zeros, false = jnp.zeros(action.shape), jnp.zeros(action.shape, bool)
    return Batch(Transition(view, action, zeros, false, false, view, false), ~false, (), index)
