"""Logged data of mixed quality: segments of a delivery grid by behavior policies from random to nearly the best."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.contracts import Mode
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Number, Report, Transition, View
from thespis.data.feeds import Rollouts
from thespis.papers.regret_preference_model.envs import GridTables
from thespis.papers.regret_preference_model.method import SegmentLearner, SegmentLearnerState, TablePolicy
from thespis.papers.regret_preference_model.planning import action_values, greedy_probs, optimal_values
from thespis.papers.regret_preference_model.segments import SegmentPairs
from thespis.runtime.keys import fold

NUM_PLANNING_STEPS = 25
"""Horizon of the behavior policies' planning."""


def random_action_probs(num_rows: int, lowest: Number) -> Float[Array, " row"]:
    """How often each row's behavior policy acts at random: evenly spread between ``lowest`` and 1, in mixed order."""
    order = np.random.default_rng(0).permutation(num_rows)
    return lowest + (1.0 - lowest) * jnp.asarray((order + 0.5) / num_rows, "float32")


def best_action_values(tables: GridTables) -> Float[Array, "state action"]:
    """Action values of the best policy for the true rewards, which behavior policies alone may read."""
    dynamics = tables.next_state, tables.is_terminal
    values = optimal_values(tables.rewards, *dynamics, 1.0, NUM_PLANNING_STEPS)
    return action_values(tables.rewards, values, *dynamics, 1.0)


def simulate_pairs(
    tables: GridTables, lowest_random_prob: Number, num_pairs: int, num_steps: int, key: Key[Array, ""]
) -> SegmentPairs:
    """New pairs of segments by the same behavior policies, from an episode's beginning on; without labels."""
    rows = 2 * num_pairs
    random_prob = random_action_probs(rows, lowest_random_prob)
    best = greedy_probs(best_action_values(tables))
    start_logits = jnp.where(tables.is_start, 0.0, -jnp.inf)
    start = jax.random.categorical(fold(key, "start"), start_logits, shape=(rows,)).astype("int32")

    def step(state: Array, step_key: Key[Array, ""]) -> tuple[Array, tuple[Array, Array]]:
        probs = random_prob[:, None] / best.shape[1] + (1.0 - random_prob[:, None]) * best[state]
        action = jax.random.categorical(step_key, jnp.log(probs)).astype("int32")
        return jnp.where(tables.is_terminal[state], state, tables.next_state[state, action]), (state, action)

    final, (states, actions) = jax.lax.scan(step, start, jax.random.split(fold(key, "steps"), num_steps))
    path = jnp.concatenate([states, final[None]]).T.reshape(num_pairs, 2, num_steps + 1)
    is_over = tables.is_terminal[path]
    actions = actions.T.reshape(num_pairs, 2, num_steps)
    return SegmentPairs(path, actions, ~is_over[..., :-1], is_over[..., -1], jnp.zeros(num_pairs))


class MixedQualitySegments(eqx.Module):
    """A learner from pairs of segments whose data are of mixed quality, in place of random actions.

    Each row of the first rollout has a behavior policy of its own, which acts at random with some probability and else
    takes the best action for the true rewards.
    """

    learner: SegmentLearner
    """Who learns from the segments and their labels."""
    lowest_random_prob: Number = 0.25
    """Probability of a random action of the best behavior policy; that of the worst is 1."""

    name: ClassVar[str] = "mixed-quality-segments"
    citations: ClassVar[tuple[Citation, ...]] = ()
    details: ClassVar[tuple[str, ...]] = ("behavior policies differ in how often they act at random",)

    @property
    def feed(self) -> Rollouts:
        """The feed of the learner, which collects one rollout."""
        return self.learner.feed

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> SegmentLearnerState:
        """The initial state of the learner; the behavior policies have none."""
        return self.learner.init(spec, key)

    def policy(self, state: SegmentLearnerState, mode: Mode) -> TablePolicy:
        """Values of actions for the behavior policies, or the learner's policy."""
        if mode is Mode.EXPLORE:
            return TablePolicy(best_action_values(state.tables), mode)
        return self.learner.policy(state, mode)

    def init_memory(self, policy: TablePolicy, n: int) -> tuple[()]:
        """No memory: actions depend on the cell alone."""
        return ()

    def act(self, policy: TablePolicy, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """Actions of the rows' behavior policies to collect segments; else the learner's."""
        actions, memory, extras = self.learner.act(policy, memory, view, key)
        if policy.mode is not Mode.EXPLORE:
            return actions, memory, extras
        random_prob = random_action_probs(len(actions), self.lowest_random_prob)
        is_random = jax.random.uniform(fold(key, "behavior", self.learner.stream), actions.shape) < random_prob
        best = jnp.argmax(view.observation @ policy.logits, axis=-1).astype("int32")
        return jnp.where(is_random, actions, best), memory, extras

    def judge(self, state: SegmentLearnerState, episode: Transition) -> Critique:
        """What the learner says of an episode."""
        return self.learner.judge(state, episode)

    def update(
        self, state: SegmentLearnerState, batch: Batch, key: Key[Array, ""]
    ) -> tuple[SegmentLearnerState, Report]:
        """The update of the learner, on segments of the behavior policies."""
        return self.learner.update(state, batch, key)
