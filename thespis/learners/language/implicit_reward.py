"""Implicit turn reward: a language model as critic, whose log-ratio to a reference is the advantage of a turn."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.actors.lm_policy import DialogueSpec
from thespis.core.records import Number
from thespis.language.sampling import TemperatureSampler
from thespis.learners.language.dialogues import Dialogues
from thespis.learners.language.response_critics import CriticUpdate, TurnAdvantageCritic
from thespis.learners.optim.optimizers import Adam, gradient_step
from thespis.nets.decoder import Decoder
from thespis.objectives.preferences import dpo_loss


class ImplicitReward(TurnAdvantageCritic):
    r"""Implicit reward (Zhou et al. 2025, SWEET-RL): turn advantages, learned from comparisons of dialogues.

    It learns which of two dialogues had the higher return.

    .. math:: A(o_t, a_t, c) = \frac{1}{L} \sum_l \log \frac{\pi_\theta(a_t^l | o_t, c)}{\pi_{ref}(a_t^l | o_t, c)},
              \qquad -\log \sigma\left(\beta \sum_t A_t^+ - \beta \sum_t A_t^-\right)

    :math:`c` is the privileged information that the environment gives to critics only. This is the paper's score of a
    dialogue; with ``per_token`` it is that of the authors' code, the log-ratio per token of the whole dialogue, which
    does not grow with the number of turns. Differs: their reference does not read :math:`c` when turns are compared,
    which changes the order only through the reference's own use of :math:`c`.
    """

    beta: Number = 0.1
    """Weight of the log-ratio, above 0."""
    num_critic_pretrain_updates: int = eqx.field(static=True, default=300)
    """Updates in which only the critic learns; afterwards it is fixed."""
    learning_rate: Number = 3e-4
    """Step size of the critic."""
    per_token: bool = eqx.field(static=True, default=False)
    """Whether a dialogue's score is the mean log-ratio of all its response tokens, in place of a sum over turns."""
    needs_log_ratio: ClassVar[bool] = False
    needs_pairs: ClassVar[bool] = True

    @property
    def optimizer(self) -> Adam:
        """Optimizer of the critic: Adam with gradients clipped to norm 1."""
        return Adam(self.learning_rate, 1.0)

    def init_from(self, model: Decoder, dialogue_spec: DialogueSpec, key: Key[Array, ""]) -> tuple[Decoder, PyTree]:
        """A copy of the model, whose advantages against it are all 0, and its optimizer state."""
        critic = jax.tree.map(jnp.copy, model)
        return critic, self.optimizer.init(critic)

    def values(self, critic: PyTree, reference: PyTree, dialogues: Dialogues) -> None:
        """No state values: this critic has advantages of turns only."""

    def update(
        self,
        critic: PyTree,
        reference: PyTree,
        dialogues: Dialogues,
        log_ratio: Any,
        update_index: Int[Array, ""],
        key: Key[Array, ""],
    ) -> CriticUpdate:
        """One critic step on pairs of dialogues, during pretraining only.

        Even rows are the better dialogues of the pairs, odd rows the worse ones.
        """

        def pair_loss(judge: Decoder) -> tuple[Array, dict[str, Array]]:
            score = self.dialogue_scores(judge, reference, dialogues)
            better, worse = score[0::2], score[1::2]
            loss = dpo_loss(better, worse, self.beta).mean()
            return loss, {"critic_loss": loss, "critic_accuracy": jnp.mean(better > worse, dtype="float32")}

        judge, opt_state, metrics, _ = gradient_step(self.optimizer, pair_loss, *critic)
        critic = jax.tree.map(
            lambda new, old: jnp.where(update_index < self.num_critic_pretrain_updates, new, old),
            (judge, opt_state),
            critic,
        )
        return critic, (), metrics

    def dialogue_scores(self, judge: Decoder, reference: Decoder, dialogues: Dialogues) -> Float[Array, " row"]:
        """Score of each dialogue, by which pairs are compared: the sum of its advantages, or the mean log-ratio."""
        advantages = mean_log_ratio(judge, reference, dialogues)
        if not self.per_token:
            return advantages.sum(axis=0)
        num_tokens = dialogues.response_mask.sum(axis=-1)
        return (advantages * num_tokens).sum(axis=0) / jnp.maximum(num_tokens.sum(axis=0), 1)

    def turn_advantages(self, critic: PyTree, reference: PyTree, dialogues: Dialogues) -> Float[Array, "time row"]:
        """Advantage of each turn: the mean log-ratio over its tokens; 0 where there is no response."""
        return mean_log_ratio(critic[0], reference, dialogues)


def mean_log_ratio(model: Decoder, reference: Decoder, dialogues: Dialogues) -> Float[Array, "time row"]:
    """Log-ratio of two models, mean over the tokens of each response; no gradient flows through the reference."""
    log_probs = [dialogues.response_log_probs(model, TemperatureSampler())[0] for model in (model, reference)]
    ratio = jnp.where(dialogues.response_mask, log_probs[0] - jax.lax.stop_gradient(log_probs[1]), 0.0)
    return ratio.sum(axis=-1) / jnp.maximum(dialogues.response_mask.sum(axis=-1), 1)
