"""Rollout transforms: change sampled dialogues before their advantages are estimated.

A transform has a state and maybe a model of its own. Its ``init`` returns the state; a call takes the state and the
sampled dialogues and returns the new state, the dialogues to learn from, and metrics. Rewards may be rewritten, and
whole dialogues be replaced by stored ones, whose tokens then have the log-probabilities of the time when they were
sampled.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.actors.lm_policy import DialogueSpec
from thespis.core.records import Number
from thespis.learners.language.dialogues import SampledDialogues
from thespis.nets.decoder import Decoder

_HASH_PRIME = 1_000_003


class RolloutTransform(eqx.Module):
    """Slot: a change of sampled dialogues before their advantages are estimated."""

    @abc.abstractmethod
    def init(self, model: Decoder, dialogue_spec: DialogueSpec, num_turns: int, key: Key[Array, ""]) -> Any:
        """The initial state, a tree of arrays; ``model`` is the policy's decoder."""

    @abc.abstractmethod
    def __call__(
        self, state: Any, dialogues: SampledDialogues, group_size: int, key: Key[Array, ""]
    ) -> tuple[Any, SampledDialogues, dict[str, Array]]:
        """The new state, the dialogues to learn from, and metrics."""


class _NoTransform(eqx.Module):
    """No transform: dialogues are learned from as they were collected."""

    def init(self, model: Decoder, dialogue_spec: DialogueSpec, num_turns: int, key: Key[Array, ""]) -> tuple[()]:
        """An empty state: nothing has to be kept."""
        return ()

    def __call__(
        self, state: tuple[()], dialogues: SampledDialogues, group_size: int, key: Key[Array, ""]
    ) -> tuple[tuple[()], SampledDialogues, dict[str, Array]]:
        """Return the dialogues and the state unchanged."""
        return state, dialogues, {}


NO_TRANSFORM = _NoTransform()
"""What ``rollout_transform=None`` does."""


class MovingAverageState(eqx.Module):
    """State of the moving average: mean return of all dialogues so far, and the number of batches it is made of."""

    mean: Float[Array, ""]
    num_batches: Float[Array, ""]


class MovingAverageBaseline(RolloutTransform):
    """Moving-average baseline: the last reward of each dialogue minus the mean return of earlier batches.

    Source: Ahmadian et al. 2024 (b_MA). The baseline of REINFORCE without groups: the gradient stays unbiased, as the
    baseline is older than the batch.
    """

    def init(
        self, model: Decoder, dialogue_spec: DialogueSpec, num_turns: int, key: Key[Array, ""]
    ) -> MovingAverageState:
        """No batches yet: mean 0."""
        return MovingAverageState(jnp.zeros(()), jnp.zeros(()))

    def __call__(
        self, state: MovingAverageState, dialogues: SampledDialogues, group_size: int, key: Key[Array, ""]
    ) -> tuple[MovingAverageState, SampledDialogues, dict[str, Array]]:
        """Rewards, minus the mean return in each last turn."""
        baseline = jnp.where(dialogues.is_last_turn, state.mean, 0.0)
        lowered = dataclasses.replace(dialogues, reward=dialogues.reward - baseline)
        num_batches = state.num_batches + 1
        mean = state.mean + (dialogues.returns.mean() - state.mean) / num_batches
        return MovingAverageState(mean, num_batches), lowered, {"baseline": state.mean}


class PlayerBaseline(RolloutTransform):
    r"""Player baseline: the last reward of a dialogue minus a running mean of each player's returns.

    Source: Liu et al. 2025 (SPIRAL). Their role-conditioned advantage: :math:`b \leftarrow \alpha b + (1 - \alpha) R`
    with each dialogue, :math:`A = R - b`. Differs from the paper: dialogues of one batch count alike and share one
    ``b``.
    """

    ema_decay: Number = 0.95
    """Decay of the running mean per dialogue, in [0, 1)."""
    per_player: bool = eqx.field(static=True, default=True)
    """Whether each player has a mean of its own; else all share one."""

    def init(
        self, model: Decoder, dialogue_spec: DialogueSpec, num_turns: int, key: Key[Array, ""]
    ) -> Float[Array, " player"]:
        """Initial state: moving means of 0."""
        return jnp.zeros(dialogue_spec.num_players)

    def __call__(
        self, state: Float[Array, " player"], dialogues: SampledDialogues, group_size: int, key: Key[Array, ""]
    ) -> tuple[Float[Array, " player"], SampledDialogues, dict[str, Array]]:
        """Rewards, minus the player's mean return in each last turn. Players of one game are in adjacent rows."""
        spoke = dialogues.alive.any(axis=0).reshape(-1, state.shape[0])
        earned = dialogues.returns.reshape(spoke.shape)  # 0 for players without a turn
        count, total = spoke.sum(axis=0), earned.sum(axis=0)
        if not self.per_player:
            count, total = (jnp.broadcast_to(x.sum(), x.shape) for x in (count, total))
        decay = self.ema_decay**count
        state = decay * state + (1.0 - decay) * total / jnp.maximum(count, 1)
        baseline = jnp.tile(state, len(spoke))
        lowered = dataclasses.replace(
            dialogues, reward=dialogues.reward - jnp.where(dialogues.is_last_turn, baseline, 0.0)
        )
        return state, lowered, {"baseline": state.mean(), "baseline_apart": state.max() - state.min()}


class SuccessReplayState(eqx.Module):
    """State of success replay: one stored dialogue per slot, its prompt, and whether the slot is occupied."""

    dialogues: SampledDialogues
    prompts: Int[Array, "slot length"]
    occupied: Bool[Array, " slot"]


class SuccessReplay(RolloutTransform):
    """Success replay: a group without any success gets a stored one with its prompt in place of its first row.

    The stored one is the latest. Without it such a group, all of whose returns are equal, would give no gradient (Lu et
    al. 2025, ARPO). Differs from their code, which keeps the last eight successes of each task and draws one: here the
    latest, which is nearest to the policy. Their importance ratios are to the current policy, which is the method's
    ``recompute_log_probs=True``. A task is recognized by what the environment says first: environments that hide it
    (wordle, questions) start all alike, and need no replay.
    """

    num_slots: int = eqx.field(static=True, default=256)
    """Largest number of stored prompts: two that fall into one slot overwrite each other."""
    success_threshold: Number = 0.5
    """Return from which a dialogue counts as a success."""

    def init(
        self, model: Decoder, dialogue_spec: DialogueSpec, num_turns: int, key: Key[Array, ""]
    ) -> SuccessReplayState:
        """Initial state: no prompt has a stored success."""
        prompts = jnp.full((self.num_slots, dialogue_spec.max_length), -1)
        return SuccessReplayState(
            SampledDialogues.empty(self.num_slots, dialogue_spec, num_turns), prompts, jnp.zeros(self.num_slots, bool)
        )

    def __call__(
        self, state: SuccessReplayState, dialogues: SampledDialogues, group_size: int, key: Key[Array, ""]
    ) -> tuple[SuccessReplayState, SampledDialogues, dict[str, Array]]:
        """Replace failures of this batch by stored successes, then store its own successes."""
        prompts = dialogues.text_before(0)
        slot, success = _hash_slots(prompts, self.num_slots), dialogues.returns >= self.success_threshold
        rows = jnp.arange(len(success))
        has_success = state.occupied[slot] & (state.prompts[slot] == prompts).all(axis=1)
        failed = jnp.repeat(~success.reshape(-1, group_size).any(axis=1), group_size)
        replaced = failed & has_success & (rows % group_size == 0)
        new_dialogues = state.dialogues.take_rows(slot).where(replaced, dialogues)

        latest = jax.ops.segment_max(jnp.where(success, rows, -1), slot, self.num_slots)
        updated = latest >= 0
        source = jnp.maximum(latest, 0)
        stored_dialogues = dialogues.take_rows(source).where(updated, state.dialogues)
        stored_prompts = jnp.where(updated[:, None], prompts[source], state.prompts)
        replayed_fraction = replaced.sum(dtype="float32") * group_size / len(success)
        return (
            SuccessReplayState(stored_dialogues, stored_prompts, state.occupied | updated),
            new_dialogues,
            {"recalled": replayed_fraction},
        )


def _hash_slots(prompts: Int[Array, "row length"], num_slots: int) -> Int[Array, " row"]:
    """A slot for each prompt, the same for equal prompts."""

    def add(total: Array, ids: Array) -> tuple[Array, None]:
        return total * jnp.uint32(_HASH_PRIME) + ids.astype("uint32"), None

    total, _ = jax.lax.scan(add, jnp.zeros(len(prompts), "uint32"), prompts.T)
    return ((total ^ (total >> 15)) % jnp.uint32(num_slots)).astype("int32")
