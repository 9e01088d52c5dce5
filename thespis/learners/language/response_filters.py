"""Response filters: of each group of sampled dialogues only those of chosen ranks by reward are learned from.

Source: Shen and Zhang, 2024 (PF-PPO): a reward model is the more reliable the higher or lower its reward, so the
dialogues of middle rank are left out.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from thespis.actors.lm_policy import DialogueSpec
from thespis.core.errors import UserError
from thespis.learners.language.dialogues import SampledDialogues
from thespis.learners.language.rollout_transforms import RolloutTransform
from thespis.nets.decoder import Decoder
from thespis.runs.ranges import Range, in_range
from thespis.runtime.keys import fold


class RankFilter(RolloutTransform):
    """Policy filtration: of each group the best, the worst and randomly drawn dialogues are kept, by their return.

    Best-of-N is ``num_best=1, num_worst=0``, best-random ``num_best=1, num_worst=0, num_random=1``, best-worst the
    default. With ``num_random`` alone the filter ignores returns. Equal returns are ranked at random. A group baseline
    (``LeaveOneOut`` ...) compares the kept dialogues of a group with each other.
    """

    num_best: int = eqx.field(static=True, default=1, metadata=in_range(Range(0)))
    """Dialogues of the highest return that are kept."""
    num_worst: int = eqx.field(static=True, default=1, metadata=in_range(Range(0)))
    """Dialogues of the lowest return that are kept."""
    num_random: int = eqx.field(static=True, default=0, metadata=in_range(Range(0)))
    """Dialogues that are drawn among the others, without replacement."""

    def __check_init__(self):
        """Raise ``ValueError`` if nothing is kept."""
        if self.num_kept == 0:
            raise ValueError("a filter keeps some dialogue: num_best, num_worst or num_random above 0")

    @property
    def num_kept(self) -> int:
        """Dialogues of each group that are kept."""
        return self.num_best + self.num_worst + self.num_random

    def init(self, model: Decoder, dialogue_spec: DialogueSpec, num_turns: int, key: Key[Array, ""]) -> tuple[()]:
        """An empty state. Raises ``UserError`` for dialogues of several players, whose returns are of one game."""
        if dialogue_spec.num_players > 1:
            raise UserError("RankFilter ranks dialogues of one player: num_players=1")
        return ()

    def __call__(
        self, state: tuple[()], dialogues: SampledDialogues, group_size: int, key: Key[Array, ""]
    ) -> tuple[tuple[()], SampledDialogues, dict[str, Array]]:
        """The kept dialogues, those of a group adjacent.

        Raises:
            UserError: for groups with fewer dialogues than are kept.
        """
        if self.num_kept > group_size:
            raise UserError(
                f"RankFilter keeps {self.num_kept} dialogues of each group of {group_size}: a larger feed.group_size"
            )
        kept = dialogues.take_rows(self.kept_rows(dialogues.returns.reshape(-1, group_size), key))
        return state, kept, {"kept_return": kept.returns.mean()}

    def kept_rows(self, returns: Float[Array, "group member"], key: Key[Array, ""]) -> Int[Array, " kept"]:
        """Indices of the kept dialogues among all, group by group: the best, the worst and the random ones."""
        group_size = returns.shape[1]
        tie_breaks, draws = (jax.random.uniform(fold(key, name), returns.shape) for name in ("ties", "draws"))
        best_first = jnp.lexsort((tie_breaks, -returns), axis=1)
        end = group_size - self.num_worst
        middle = best_first[:, self.num_best : end]
        order = jnp.argsort(draws[:, : middle.shape[1]], axis=1)[:, : self.num_random]
        members = jnp.concatenate(
            [best_first[:, : self.num_best], best_first[:, end:], jnp.take_along_axis(middle, order, axis=1)], axis=1
        )
        return (members + group_size * jnp.arange(len(members))[:, None]).reshape(-1)
