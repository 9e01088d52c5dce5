r"""Categorical deep Q-network: of each choice it learns the chances of 51 returns, not the mean return alone.

The return after the choice that is best on average is moved and shrunk by what was earned and the discount, brought
back onto the atoms, and becomes the target of a cross-entropy:

.. math:: \min_\theta \; -\sum_i m_i \log p_i(s, a; \theta), \quad m = \Pi \left[ r + \gamma z, p(s', a^*) \right]

Several ``members`` may learn in parallel, each from its own share of a batch, and take their targets from themselves
or from the average of them all (``believed``). Each decides in episodes of its own, all together where they exploit.

Source: Bellemare et al., 2017, algorithm 1; members: Lindenberg et al., 2020, and their code. Sizes are theirs, beside
a warm-up of 1,000 steps for 50,000. Differs from the latter: members share one replay, where there each has its own
and a world of its own; epsilon falls with updates. Returns outside ``lowest`` and ``highest`` cannot be said:
widen them.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, Key

from thespis.core.errors import UserError
from thespis.core.feeds import Replay
from thespis.core.records import Batch, Citation, EnvSpec, Report
from thespis.critics.categorical import CategoricalValue
from thespis.learners.backup import backup
from thespis.learners.categorical import Believed, Own, dealt, fit_distributions, following
from thespis.learners.choices import ChoiceLearner, ChoiceState
from thespis.learners.gradient import Adam, Number
from thespis.learners.greedy import EachEpisode, EpsilonGreedy, Turns


class C51(EpsilonGreedy, ChoiceLearner):
    """Categorical deep Q-network for one discrete choice; alone, or in an ensemble."""

    learning_rate: Number = 2.5e-4
    """Step size."""
    adam_epsilon: Number = 3.125e-4
    """What Adam adds to the root of the mean square of a gradient."""
    last_epsilon: Number = 0.01
    """Chance of a random choice after ``epsilon_updates`` updates."""
    epsilon_updates: Number = 62_500.0
    """Updates over which the chance falls, linearly."""
    believed: Believed = Own()
    """Whose distributions targets are made of: Own or Mixture."""
    turns: Turns = EachEpisode()
    """Which of several members explores: EachEpisode or EachStep another."""
    lowest: float = eqx.field(static=True, default=-10.0)
    """The least discounted return that can be said."""
    highest: float = eqx.field(static=True, default=10.0)
    """The greatest one."""
    atoms: int = eqx.field(static=True, default=51)
    """How many returns have a chance, at equal distances."""
    members: int = eqx.field(static=True, default=1)
    """Nets that learn in parallel; ``feed.batch`` is dealt to them in equal shares."""
    target_every: int = eqx.field(static=True, default=2_500)
    """Updates between copies of the nets to the targets."""
    feed: Replay = eqx.field(static=True, default=Replay(capacity=900_000, batch=32, warmup=1_000, every=4))
    """Replay: capacity, batch, warmup, every, updates, length (n-step)."""

    name: ClassVar[str] = "c51"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "A Distributional Perspective on Reinforcement Learning", "Bellemare et al.", 2017, "arXiv:1707.06887"
        ),
    )
    details: ClassVar[tuple[str, ...]] = (
        "truncation bootstraps, termination does not",
        "the target nets choose the next action by their mean returns",
        "cross-entropy, Adam, global gradient norm clipped; returns clipped into the range of the atoms",
    )

    def net(self, spec: EnvSpec, key: Key[Array, ""]) -> CategoricalValue:
        """One fresh member. Raises ``UserError`` for settings that fit no net."""
        if self.duelling or self.atoms < 2 or self.highest <= self.lowest:
            raise UserError(
                f"{self.name} has no duelling streams, and needs two atoms or more, from lowest to a greater highest"
            )
        return CategoricalValue(spec, self.hidden, key, lowest=self.lowest, highest=self.highest, atoms=self.atoms)

    def update(self, state: ChoiceState, batch: Batch, key: Key[Array, ""]) -> tuple[ChoiceState, Report]:
        """One step of every member; targets are copied every ``target_every`` updates."""
        shares = dealt(backup(batch, self.discount), self.members)
        target = following(self.believed, state.target, shares)
        critic, opt, metrics = fit_distributions(self.stepper(), state.critic, state.opt, shares, target)
        return self.renewed(state, critic, opt), Report(metrics)

    def stepper(self) -> Adam:
        """How gradients become steps."""
        return Adam(self.learning_rate, self.max_gradient_norm, self.adam_epsilon)
