"""Credit to reflections alone: which tokens of second tries are learned, and what they are compared with."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Key

from thespis.actors.lm_policy import DialogueSpec
from thespis.core.errors import UserError
from thespis.learners.language.dialogues import SampledDialogues
from thespis.learners.language.rollout_transforms import RolloutTransform
from thespis.nets.decoder import Decoder
from thespis.objectives.statistics import masked_mean

REFLECTION, RETRY = 1, 2
"""Turns of a dialogue: the first attempt is turn 0."""


class ReflectionCredit(RolloutTransform):
    r"""Reflection credit: only the tokens of a reflection are learned, by whether the attempt after it succeeds.

    For dialogues of one model that attempts, reflects and tries again
    (:class:`~thespis.envs.text.retry.RetryConversation` with ``self_reflection``, two attempts). First attempts and
    second ones are not learned, and dialogues that need no reflection neither. The return of a second attempt becomes
    the group-normalized advantage :math:`(R - \bar R) / (\sigma + 10^{-4})` of its reflection, with the advantage
    estimator ``TrajectoryReturn(NoBaseline())``. Groups are the reflections of the same initial state on the same
    failed attempt: all have read the same. Reflections that nobody else shares the attempt of have no advantage.

    Source: Bensal et al. 2025. Differs from the paper, where groups are sampled on failed attempts that were collected
    once before training: here on those that the model makes, so that groups differ in size.
    """

    same_attempt: bool = eqx.field(static=True, default=True)
    """Whether a group is of the same failed attempt; else of the same initial state, with other failures, too."""
    learn_retries: bool = eqx.field(static=True, default=False)
    """Whether the tokens of second attempts are learned too, with the advantages of their reflections."""

    def init(self, model: Decoder, dialogue_spec: DialogueSpec, num_turns: int, key: Key[Array, ""]) -> tuple[()]:
        """An empty state. Raises ``UserError`` for dialogues of other than three turns of one player."""
        if dialogue_spec.num_players > 1 or num_turns != RETRY + 1:
            raise UserError(
                f"ReflectionCredit is for an attempt, a reflection and another attempt of one model, not for "
                f"{num_turns} turns of {dialogue_spec.num_players} players: RetryConversation(task, "
                "self_reflection=True)"
            )
        return ()

    def __call__(
        self, state: tuple[()], dialogues: SampledDialogues, group_size: int, key: Key[Array, ""]
    ) -> tuple[tuple[()], SampledDialogues, dict[str, Array]]:
        """The advantages of reflections as rewards; other turns are marked as not the policy's own."""
        returns, has_reflection = dialogues.returns, dialogues.alive[REFLECTION]
        peers = self._peers(dialogues, group_size) & has_reflection & has_reflection[:, None]
        count = peers.sum(axis=1)
        mean = jnp.where(peers, returns, 0.0).sum(axis=1) / jnp.maximum(count, 1)
        squares = jnp.where(peers, jnp.square(returns - mean[:, None]), 0.0).sum(axis=1)
        std = jnp.sqrt(squares / jnp.maximum(count - 1, 1))
        advantage = jnp.where(has_reflection, (returns - mean) / (std + 1e-4), 0.0)
        turn = jnp.arange(len(dialogues.alive))[:, None]
        is_learned = (turn == REFLECTION) | (self.learn_retries & (turn == RETRY))
        credited = dataclasses.replace(
            dialogues,
            alive=dialogues.alive & has_reflection & is_learned,
            reward=jnp.where(turn == REFLECTION, advantage, 0.0),
        )
        metrics = {
            "reflected": has_reflection.mean(dtype="float32"),
            "second_tries": masked_mean(returns, has_reflection),
            "compared": masked_mean(count.astype("float32"), has_reflection),
        }
        return state, credited, metrics

    def _peers(self, dialogues: SampledDialogues, group_size: int) -> Bool[Array, "row row"]:
        """Whether two rows are of the same group."""
        group = jnp.arange(dialogues.alive.shape[1]) // group_size
        peers = group == group[:, None]
        if not self.same_attempt:
            return peers
        before = dialogues.text_before(REFLECTION)
        return peers & (before == before[:, None]).all(axis=-1)
