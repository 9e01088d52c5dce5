"""Deep Q-network: regress ``Q(s, a)`` on ``r + gamma max_a' Q_target(s', a')`` from replay, act epsilon-greedily.

``double`` lets the online net choose ``a'`` and the target net evaluate it (van Hasselt et al., 2016);
``duelling`` splits state value and advantage (Wang et al., 2016); ``feed.length`` steps give n-step targets;
``targets`` may be those of a chain of nets (Vincent et al., 2024).

Source: Mnih et al., 2015.
Differs from common code: epsilon falls with updates, not with environment steps; illegal choices are neither
taken nor maximised over. Where targets scatter by more than ``huber`` and unevenly, Huber's loss is not least at
their mean, and values come out biased (too low where rare returns are high): enlarge it.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
from jaxtyping import Array, Key

from thespis.core.feeds import Replay
from thespis.core.records import Batch, Citation, Report
from thespis.learners.backup import backup, fit_critics
from thespis.learners.choices import ChoiceLearner, ChoiceState, legal_values
from thespis.learners.gradient import Adam, Number
from thespis.learners.greedy import EachStep, EpsilonGreedy, Turns
from thespis.learners.targets import Copied, Targets
from thespis.objectives.values import double_q, huber


class DQN(EpsilonGreedy, ChoiceLearner):
    """Deep Q-network for one discrete choice: double, duelling and n-step as options."""

    learning_rate: Number = 1e-4
    """Step size."""
    huber: Number = 1.0
    """Error, in units of reward, beyond which the loss is linear; a large one squares every error."""
    double: bool = eqx.field(static=True, default=True)
    """Choose the next action by the online net."""
    targets: Targets = Copied()
    """How the target follows: Copied, or a Chain of nets that learn several Bellman updates at once."""
    target_every: int = eqx.field(static=True, default=1_000)
    """Updates between copies of the net to the target."""
    feed: Replay = eqx.field(static=True, default=Replay(batch=64, warmup=1_000, every=4))
    """Replay: capacity, batch, warmup, every, updates, length (n-step)."""

    turns: ClassVar[Turns] = EachStep()
    name: ClassVar[str] = "dqn"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Human-level control through deep reinforcement learning", "Mnih et al.", 2015, "Nature 518"),
        Citation("Deep Reinforcement Learning with Double Q-learning", "van Hasselt et al.", 2016, "arXiv:1509.06461"),
        Citation("Dueling Network Architectures", "Wang et al.", 2016, "arXiv:1511.06581"),
    )
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps, termination does not",
        "Huber loss, Adam, global gradient norm clipped",
        "n-step windows are cut at an episode's end and discounted by their own length",
    )

    @property
    def members(self) -> int:
        """How many nets there are."""
        return self.targets.members

    def update(self, state: ChoiceState, batch: Batch, key: Key[Array, ""]) -> tuple[ChoiceState, Report]:
        """One step of every net; targets follow, at every ``target_every``-th update at the latest."""
        data = backup(batch, self.discount)
        following = jax.vmap(lambda view: legal_values(state.target, view))(data.next_view)
        chooser = following
        if self.double:
            chooser = jax.vmap(lambda view: legal_values(state.critic, view))(data.next_view)
        next_value = jax.vmap(jax.vmap(double_q))(chooser, following)
        critic, opt, metrics = fit_critics(
            self.stepper(), state.critic, state.opt, data, data.earned[:, None] + data.discount[:, None] * next_value,
            lambda error: huber(error, self.huber),
        )  # fmt: skip
        critic, target = self.targets.renewed(critic, state.target, state.updates + 1, self.target_every)
        return ChoiceState(critic, target, opt, state.updates + 1), Report(metrics)

    def stepper(self) -> Adam:
        """How gradients become steps."""
        return Adam(self.learning_rate, self.max_gradient_norm)
