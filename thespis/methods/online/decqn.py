r"""Decoupled Q-networks: the value of a vector of choices is the mean of utilities, one of each part's choice.

.. math:: Q(s, a) = \tfrac1N \sum_i U_i(s, a_i), \quad y = r + \gamma \tfrac1N \sum_i \max_{a_i} U_i(s', a_i)

Each dimension of a box becomes a choice among ``bins`` amounts. Several ``members`` may learn in parallel, expecting
what they do by themselves or what all do on average (``believed``), and ``holding`` may keep utilities where they were.

Source: Seyde et al., 2022, from the authors' code; sizes are those of the code of Ireland and Montana, 2024. Differs
from both: plain hidden layers, without normalisation or residuals; epsilon falls linearly with updates. From the
former: targets follow slowly instead of being copied, 3 bins for 2, no priorities in replay.
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.actors.greedy import epsilon_greedy_vector
from thespis.core.feeds import Replay
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Report, Transition, View
from thespis.critics.decoupled import DecoupledValue, parts_of
from thespis.critics.values import ensemble, evaluate_ensemble
from thespis.learners.backup import backup
from thespis.learners.choices import ChoiceState
from thespis.learners.decoupled import Expected, Holding, OwnUtilities, Unheld, expected, fit_utilities, tables
from thespis.learners.gradient import Adam, Number, polyak
from thespis.learners.greedy import EachStep, EpsilonGreedy, GreedyPolicy, Turns
from thespis.objectives.values import huber


class DecQN(EpsilonGreedy):
    """Decoupled Q-network for one vector of choices, or one bounded box of actions cut into bins."""

    learning_rate: Number = 1e-4
    """Step size."""
    discount: Number = 0.99
    """Discount per step, in [0, 1]."""
    max_gradient_norm: Number = 40.0
    """Global norm to which the gradient is clipped."""
    epsilon_updates: Number = 4_000.0
    """Updates over which the chance falls, linearly; all parts explore at once."""
    target_rate: Number = 0.005
    """Share by which the targets move."""
    huber: Number = 1.0
    """Error, in units of reward, beyond which the loss is linear; a large one squares every error."""
    believed: Expected = OwnUtilities()
    """What is expected of the next state: OwnUtilities or MeanUtilities."""
    holding: Holding = Unheld()
    """What keeps utilities where they were: Unheld or Held."""
    turns: Turns = EachStep()
    """Which of several members explores: EachStep another or EachEpisode."""
    members: int = eqx.field(static=True, default=1)
    """Nets that learn in parallel from the same samples."""
    bins: int = eqx.field(static=True, default=3)
    """Amounts in each dimension of a box, from bound to bound; 2 are bang-bang control."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(512, 512))
    """Units of each hidden layer."""
    feed: Replay = eqx.field(static=True, default=Replay(capacity=500_000, batch=256, warmup=10_000, every=5, length=3))
    """Replay: capacity, batch, warmup, every, updates, length (n-step)."""

    name: ClassVar[str] = "decqn"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Solving Continuous Control via Q-learning", "Seyde et al.", 2022, "arXiv:2210.12566"),
    )
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps, termination does not",
        "Huber loss of the mean utility, Adam, global gradient norm clipped",
        "n-step windows are cut at an episode's end and discounted by their own length",
    )

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> ChoiceState:
        """Fresh nets and their copies."""
        parts = parts_of(spec.action, self.bins, self.name)
        critic = ensemble(lambda k: DecoupledValue(spec, parts, self.hidden, k), self.members, key)
        return ChoiceState(critic, critic, self._adam().init(critic), jnp.zeros((), "int32"))

    def pick(self, policy: GreedyPolicy, values: Float[Array, " n"], view: View, key: Key[Array, ""]) -> PyTree:
        """The best choice of each part, or a random legal one of each."""
        parts = policy.critic.parts
        chosen = epsilon_greedy_vector(parts.table(values), parts.choices, view.legal, policy.epsilon, key)
        return parts.left(chosen)

    def judge(self, state: ChoiceState, episode: Transition) -> Critique:
        """Members' mean values of the vectors taken, their advantage over the best one, and members' disagreement."""

        def one(view: View, action: Any) -> tuple[Array, Array]:
            best = jnp.max(jnp.mean(tables(state.critic, view), axis=0), axis=-1)
            one = jax.tree.map(lambda x: x[None], action)
            return evaluate_ensemble(state.critic, view.observation, one)[:, 0], jnp.mean(best)

        every, best = jax.vmap(one)(episode.view, episode.action)
        spread = jnp.std(every, axis=1) if self.members > 1 else None
        taken = jnp.mean(every, axis=1)
        return Critique(value=taken, advantage=taken - best, spread=spread, discount=self.discount)

    def update(self, state: ChoiceState, batch: Batch, key: Key[Array, ""]) -> tuple[ChoiceState, Report]:
        """One step of every member and its target."""
        data = backup(batch, self.discount)
        target = expected(self.believed, state.critic, state.target, data)
        critic, opt, metrics = fit_utilities(
            self._adam(), state.critic, state.target, state.opt, data, target,
            lambda error: huber(error, self.huber), self.holding,
        )  # fmt: skip
        moved = polyak(state.target, critic, self.target_rate)
        return ChoiceState(critic, moved, opt, state.updates + 1), Report(metrics)

    def _adam(self) -> Adam:
        return Adam(self.learning_rate, self.max_gradient_norm)
