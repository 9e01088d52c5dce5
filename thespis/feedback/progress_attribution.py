"""Learned turn rewards: a second language model attributes the outcome of a dialogue to its turns.

Each batch is scored with the model as it is, which is then trained on that batch, or on a buffer of the latest ones.
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.actors.lm_policy import DialogueSpec
from thespis.core.errors import UserError
from thespis.core.records import Citation, EnvSpec, Metrics, Number
from thespis.core.spaces import Text
from thespis.feedback.text_model import TurnScorer
from thespis.learners.language.dialogues import Dialogues, store_latest
from thespis.learners.language.lm_agent import LMWithValueHead
from thespis.learners.language.turn_scores import turn_scores
from thespis.learners.optim.optimizers import gradient_step
from thespis.runtime.keys import fold


class ProgressAttributionState(eqx.Module):
    """State of progress attribution: the estimator, its optimizer state, the number of batches so far, and the buffer.

    ``replay``: the latest dialogues; ``()`` if none are stored. ``refusal_token``: the token of ``refusal_word``.
    """

    estimator: LMWithValueHead
    opt_state: PyTree
    num_batches: Int[Array, ""]
    replay: PyTree = ()
    refusal_token: PyTree = ()


class ProgressAttribution(TurnScorer):
    r"""Progress attribution: the reward of a turn is its learned share :math:`c_t` of the outcome (SPA), for text.

    Wang et al. 2025:

    .. math:: \min \left(\sum_t c_t - R\right)^2, \qquad r_t = c_t + [t = T] \left(R - \sum_{t'} c_{t'}\right)

    Differs: the estimator learns while the policy does, on the dialogues that the policy samples, where theirs is
    trained once before, on dialogues that the initial policy has explored (``num_warmup_batches`` with
    ``warmup_outcome=False`` and a buffer come close); the part of the outcome that the shares leave is added at the
    last turn, so that returns are the environment's, as without it policies learned to earn shares and no outcome;
    their reward for commands that the environment could execute is left out, as not every environment reports that.
    ``refusal_penalty`` takes its place: in dialogues of equal length it is the same up to a constant.
    """

    num_gradient_steps: int = eqx.field(static=True, default=2)
    """Gradient steps of the estimator after each batch."""
    num_warmup_batches: int = eqx.field(static=True, default=20)
    """Batches that train the estimator before its rewards are used."""
    warmup_outcome: bool = eqx.field(static=True, default=True)
    """Whether rewards are the environment's own in the warm-up. If not, they are 0: a policy that learns from nothing
    else only explores."""
    buffer_size: int = eqx.field(static=True, default=0)
    """Number of latest dialogues from which the estimator learns; 0: those of the newest batch."""
    batch_size: int = eqx.field(static=True, default=32)
    """Dialogues per gradient step, if there is a buffer."""
    refusal_penalty: Number = 0.0
    """Penalty of a response that the environment could not execute, at least 0."""
    refusal_word: str = eqx.field(static=True, default="")
    """Word that stands in the environment's reply to a response that it could not execute; empty: none is penalized."""

    name: ClassVar[str] = "progress-attribution"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Stepwise Progress Attribution", "Wang et al.", 2025, "arXiv:2505.20732"),
    )

    def init_state(self, spec: EnvSpec, dialogue_spec: DialogueSpec, key: Key[Array, ""]) -> ProgressAttributionState:
        """The initial model with a value head of zeros: no turn has a share."""
        estimator = self.initial_scorer(spec, key)
        replay = Dialogues.empty(self.buffer_size, dialogue_spec, dialogue_spec.max_turns) if self.buffer_size else ()
        opt_state, num_batches = self.optimizer.init(estimator), jnp.zeros((), "int32")
        return ProgressAttributionState(estimator, opt_state, num_batches, replay, self._refusal_token(spec))

    def score_turns(
        self, state: ProgressAttributionState, dialogues: Dialogues, key: Key[Array, ""]
    ) -> Float[Array, "time row"]:
        """Attributed rewards; the environment's own, or none, while the estimator warms up."""
        share = turn_scores(state.estimator, dialogues)
        reward = share + jnp.where(dialogues.is_last_turn, dialogues.returns - share.sum(axis=0), 0.0)
        reward -= self.refusal_penalty * self._is_refused(state, dialogues)
        warmup_reward = dialogues.reward if self.warmup_outcome else jnp.zeros_like(reward)
        return jnp.where(state.num_batches < self.num_warmup_batches, warmup_reward, reward)

    def learn(
        self,
        state: ProgressAttributionState,
        dialogues: Dialogues,
        own_dialogues: Dialogues | None,
        key: Key[Array, ""],
    ) -> tuple[ProgressAttributionState, Metrics]:
        """Train the estimator on the batch, or on the buffer: shares sum to the outcome."""
        replay, num_stored = state.replay, 0
        if self.buffer_size:
            replay, num_stored = store_latest(replay, dialogues, state.num_batches)

        def batch(tick: Array) -> Dialogues:
            if not self.buffer_size:
                return dialogues
            return replay.take_rows(jax.random.randint(fold(key, "rows", tick), (self.batch_size,), 0, num_stored))

        def step(carry: Any, tick: Array) -> Any:
            estimator, opt_state, loss_value, _ = gradient_step(
                self.optimizer, lambda estimator: _attribution_loss(estimator, batch(tick)), *carry
            )
            return (estimator, opt_state), loss_value

        carry = state.estimator, state.opt_state
        (estimator, opt_state), losses = jax.lax.scan(step, carry, jnp.arange(self.num_gradient_steps))
        return ProgressAttributionState(estimator, opt_state, state.num_batches + 1, replay, state.refusal_token), {
            "attribution_loss": losses.mean()
        }

    def _refusal_token(self, spec: EnvSpec) -> PyTree:
        """The token of ``refusal_word``; ``()`` if there is none."""
        if not self.refusal_word:
            return ()
        assert isinstance(spec.action_space, Text)
        words = spec.action_space.vocabulary.words
        if self.refusal_word not in words:
            raise UserError(f"{spec.name} has no word {self.refusal_word!r}: leave refusal_word out, or name another")
        return jnp.asarray(words.index(self.refusal_word), "int32")

    def _is_refused(self, state: ProgressAttributionState, dialogues: Dialogues) -> Bool[Array, "time row"]:
        """Responses whose reply contains the refusal."""
        if not self.refusal_word:
            return jnp.zeros_like(dialogues.alive)
        places = jnp.arange(dialogues.transcript.shape[1])
        ends = dialogues.response_starts[:-1] + dialogues.response_mask.sum(axis=-1)
        in_reply = (places >= ends[..., None]) & (places < dialogues.response_starts[1:, :, None])
        return dialogues.alive & (in_reply & (dialogues.transcript == state.refusal_token)).any(axis=-1)


def _attribution_loss(estimator: LMWithValueHead, dialogues: Dialogues) -> tuple[Array, Array]:
    """Mean squared difference of the outcome and the sum of shares, twice."""
    share = turn_scores(estimator, dialogues)
    loss = jnp.square(share.sum(axis=0) - dialogues.returns).mean()
    return loss, loss
