"""Taking back: another task, in which one's last utterance can be undone, for a turn.

Who says nothing, ``<end>`` alone, is where it was before it last spoke, and hears what it heard then; what was earned
stays. Only one utterance can be taken back: where there is none, the world says again what it said last. So to see an
error is worth something where it cannot be mended otherwise, and a conversation may go wrong, be taken back, and go on
as one that never went wrong. The demonstrator is that of the task and takes nothing back.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from thespis.core.keys import fold
from thespis.envs.text.task import Heard, Manners, Task, message


class Moment(eqx.Module):
    """Where the task stands, and what the world has just said."""

    task: PyTree
    heard: Int[Array, "*episodes answer"]


class Remembered(eqx.Module):
    """Now, and before the last utterance: the same where there is nothing to take back."""

    now: Moment
    before: Moment


class TakeBack(eqx.Module):
    """``task``, with ``more`` turns."""

    task: Task
    more: int = eqx.field(static=True, default=0)

    @property
    def manners(self) -> Manners:
        """Those of the task; answers may be as long as its opening."""
        told = self.task.manners
        answer = max(told.answer, told.opening)
        choices = (*told.choices, "") if told.choices else ()
        turns = told.turns + self.more
        return dataclasses.replace(told, name="text:take-back", turns=turns, answer=answer, choices=choices)

    def begin(self, key: Key[Array, ""]) -> tuple[Remembered, Int[Array, " opening"]]:
        """The task's beginning."""
        task, opening = self.task.begin(key)
        now = Moment(task, message(self.manners.answer, opening))
        return Remembered(now, now), opening

    def hear(self, state: Remembered, said: Int[Array, " utterance"], key: Key[Array, ""]) -> tuple[Remembered, Heard]:
        """What the task says to it, or what it said before."""
        back = said[0] == self.manners.vocabulary.stop[0]
        task, heard = self.task.hear(state.now.task, said, fold(key, "task"))
        ahead = Moment(task, message(self.manners.answer, heard.answer))
        now, before = (
            jax.tree.map(lambda old, new: jnp.where(back, old, new), state.before, one) for one in (ahead, state.now)
        )
        return Remembered(now, before), Heard(now.heard, jnp.where(back, 0.0, heard.reward), heard.over & ~back)

    def expert(self, state: Remembered, key: Key[Array, ""]) -> Int[Array, " utterance"]:
        """What the task's demonstrator says."""
        return self.task.expert(state.now.task, key)
