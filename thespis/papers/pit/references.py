"""Learning of improvements alone: own responses that serve as references are not learned."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Key

from thespis.actors.lm_policy import DialogueSpec
from thespis.learners.language.dialogues import SampledDialogues
from thespis.learners.language.rollout_transforms import RolloutTransform
from thespis.nets.decoder import Decoder


class LastResponses(RolloutTransform):
    """Last responses: in dialogues of several turns the earlier ones are a part of the prompt, and not learned."""

    def init(self, model: Decoder, dialogue_spec: DialogueSpec, num_turns: int, key: Key[Array, ""]) -> tuple[()]:
        """An empty state: nothing has to be kept."""
        return ()

    def __call__(
        self, state: tuple[()], dialogues: SampledDialogues, group_size: int, key: Key[Array, ""]
    ) -> tuple[tuple[()], SampledDialogues, dict[str, Array]]:
        """Mark all turns but the last as another player's."""
        last = dialogues.is_last_turn
        rewards = jnp.where(last, dialogues.reward, 0.0)
        share = (dialogues.alive.sum(axis=0) > 1).mean(dtype="float32")
        return state, dataclasses.replace(dialogues, alive=last, reward=rewards), {"own_references": share}
