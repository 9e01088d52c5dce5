"""Preferences between attempts: those that passed their tests over those at the same task that failed.

The attempts of a group are its first attempts and, where the environment has a second turn, retries of the failed ones
with its guidance in their context.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from thespis.core.errors import UserError
from thespis.core.records import Citation
from thespis.data.feeds import Episodes
from thespis.learners.language.dialogues import Dialogues, single_turn_dialogues
from thespis.learners.language.lm_offline import LMOffline, OfflineBatch
from thespis.learners.language.preference_losses import PreferenceLoss, ResponseScores, SigmoidLoss
from thespis.learners.language.response_critics import NoCritic
from thespis.nets.decoder import Decoder
from thespis.objectives.statistics import masked_mean

RetryPrompt = Literal["task", "guidance"]


class AttemptPreferences(LMOffline):
    """Preference optimization of right over wrong attempts at the same task, with guided retries among the attempts.

    In dialogues of two turns the second response is a retry: it has read the first attempt and what the environment
    said of it. Only failed attempts are retried; what follows a right one is not used. In dialogues of one turn all
    attempts are first ones. :func:`pair_attempts` says which attempts are compared. An attempt is right if it earns
    more than 0.

    Source: Da et al. 2025 (Agent-RLVR): failed attempts are retried with guidance, and DPO learns from the retries.

    Differs: each update has fresh attempts of the model, where they sample a set once.
    """

    loss_type: PreferenceLoss = SigmoidLoss()
    """Preference loss that orders pairs: SigmoidLoss (DPO), RPOLoss, IPOLoss, ..."""
    retry_prompt: RetryPrompt = eqx.field(static=True, default="task")
    """What retries are learned as answers to: the task alone, or all that was said before them."""
    feed: Episodes = eqx.field(static=True, default=Episodes(max_steps=2, group_size=8, num_envs=64))
    """Feed of dialogues: group_size (first attempts at a task), num_envs, max_steps (1 or 2 turns), num_updates."""

    critic: ClassVar[NoCritic] = NoCritic()
    uses_returns: ClassVar[bool] = True
    name: ClassVar[str] = "attempt-preferences"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "Agent-RLVR: Training Software Engineering Agents via Guidance and Environment Rewards",
            "Da et al.",
            2025,
            "arXiv:2506.11425",
        ),
    )
    details: ClassVar[tuple[str, ...]] = ("one gradient step on each batch of fresh attempts",)

    def __check_init__(self):
        """Raise ``ValueError`` for a loss that does not order pairs."""
        if not self.loss_type.orders_pairs:
            raise ValueError(f"{type(self.loss_type).__name__}: right attempts are preferred, so it must order pairs")

    @property
    def uses_reference(self) -> bool:
        """Whether the loss does."""
        return self.loss_type.needs_reference

    def compute_loss(self, model: Decoder, batch: OfflineBatch) -> tuple[Float[Array, ""], dict[str, Array]]:
        """Preference loss, the mean over all pairs, and how often each kind of attempt is right."""
        group_size = self.feed.group_size
        attempts = pool_attempts(batch.dialogues, group_size, self.retry_prompt)
        log_probs = attempts.response_log_probs(model, self.sampler)[0]
        references = jnp.zeros_like(log_probs)
        if self.uses_reference:
            references = jax.lax.stop_gradient(attempts.response_log_probs(batch.reference, self.sampler)[0])
        better, worse, is_pair = pair_groups(attempts, batch.dialogues.alive.shape[1] // group_size)
        scores = ResponseScores.from_dialogues(attempts, log_probs, references)
        chosen, rejected = (jax.tree.map(lambda x, i=index: x[i], scores) for index in (better, worse))
        width = group_size * len(batch.dialogues.alive)
        is_first = jnp.arange(len(scores.returns)) % width >= width - group_size
        right = (scores.returns > 0.0).astype("float32")
        metrics = {
            "accuracy": masked_mean((chosen.log_ratio > rejected.log_ratio).astype("float32"), is_pair),
            "pairs": is_pair.sum(dtype="float32"),
            "first_success": masked_mean(right, is_first),
            "retry_success": masked_mean(right, attempts.alive[0] & ~is_first),
        }
        return masked_mean(self.loss_type(chosen, rejected), is_pair), metrics


def pool_attempts(dialogues: Dialogues, group_size: int, retry_prompt: RetryPrompt) -> Dialogues:
    """All attempts as dialogues of one turn, group by group: retries, if there are any, and then first attempts.

    Where the first attempt is right its retry is not alive.

    Raises:
        UserError: for dialogues of more than two turns.
    """
    num_turns, num_rows = dialogues.alive.shape
    if num_turns > 2:
        raise UserError(
            f"AttemptPreferences is for an attempt and a retry, not for {num_turns} turns: feed.max_steps=2"
        )
    turns = [_attempt(dialogues, 0, 0, dialogues.alive[0])]
    if num_turns == 2:
        is_retried = dialogues.alive[1] & (dialogues.reward[0] <= 0.0)
        turns.insert(0, _attempt(dialogues, 1, 0 if retry_prompt == "task" else 1, is_retried))
        turns = [turns[0].append_rows(turns[1])]
    index = jnp.arange(num_turns * num_rows).reshape(num_turns, -1, group_size)
    return turns[0].take_rows(jnp.swapaxes(index, 0, 1).reshape(-1))


def _attempt(dialogues: Dialogues, turn: int, prompt: int, is_attempt: Bool[Array, " row"]) -> Dialogues:
    """The responses of a turn, after what was said before that turn or another one, with their reward."""
    prompts = dialogues.text_before(prompt)
    single = single_turn_dialogues(prompts, dialogues.responses[turn], is_attempt)
    return dataclasses.replace(
        single, transcript=single.transcript[:, : prompts.shape[1]], reward=dialogues.reward[turn][None]
    )


def pair_attempts(
    is_right: Bool[Array, " attempt"], is_attempt: Bool[Array, " attempt"]
) -> tuple[Int[Array, " pair"], Int[Array, " pair"], Bool[Array, " pair"]]:
    """The attempts that are preferred in each pair of a group, the others, and which of the pairs there are.

    Each attempt is in one pair at most, and as many right and wrong ones are paired as there are of both. The right
    ones are taken from the beginning, the wrong ones from the end: right retries and wrong first attempts before others
    of their kind.
    """
    count = len(is_right) // 2
    order = jnp.argsort(jnp.where(is_attempt, jnp.where(is_right, 0, 2), 1), stable=True)
    better, worse = order[:count], order[::-1][:count]
    return better, worse, is_attempt[better] & is_right[better] & is_attempt[worse] & ~is_right[worse]


def pair_groups(
    attempts: Dialogues, num_groups: int
) -> tuple[Int[Array, " pair"], Int[Array, " pair"], Bool[Array, " pair"]]:
    """:func:`pair_attempts` of all groups of a batch of :func:`pool_attempts`, with rows of the batch as attempts."""
    is_right, is_attempt = (x.reshape(num_groups, -1) for x in (attempts.returns > 0.0, attempts.alive[0]))
    better, worse, is_pair = jax.vmap(pair_attempts)(is_right, is_attempt)
    start = is_right.shape[1] * jnp.arange(num_groups)[:, None]
    return (start + better).reshape(-1), (start + worse).reshape(-1), is_pair.reshape(-1)
