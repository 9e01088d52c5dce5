"""Delayed recall: a memory task in which the first symbol of an episode is asked for after a delay.

Every step pays 1 for the right action. First that is to copy the symbol shown: the cue, then ``delay`` other symbols,
each drawn anew. At the last ``num_recalls`` steps nothing is shown but that the cue is asked for. With memory the best
return is one for each step; without, it is ``1 + delay + num_recalls / num_symbols`` on average.

Nothing that the agent does changes what it observes, and rewards are immediate: what has to be learned beyond copying
is what to keep in memory. The task is of the kind of the two-sequence tasks of Hochreiter and Schmidhuber, 1997, "Long
short-term memory", in which distractors follow what is asked for at the end.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box, Discrete
from thespis.envs.cue_task import CueTask


class DelayedRecallState(eqx.Module):
    """State of one episode: the cue, the right action of this step, and steps taken."""

    cue: Int[Array, ""]
    answer: Int[Array, ""]
    time: Int[Array, ""]


class DelayedRecall(eqx.Module):
    """Delayed-recall environment: copy symbols, and after ``delay`` of them repeat the first one of the episode.

    Observations are the symbol, one-hot, and two numbers that are 1 at the cue and where the cue is asked for. With
    ``cue_visible`` the cue is shown wherever it is asked for, so that no memory is needed.
    """

    num_symbols: int = eqx.field(static=True, default=4)
    delay: int = eqx.field(static=True, default=15)
    """Number of other symbols to copy between cue and recall."""
    num_recalls: int = eqx.field(static=True, default=8)
    """Number of steps at which the cue is asked for."""
    cue_visible: bool = eqx.field(static=True, default=False)

    @property
    def spec(self) -> EnvSpec:
        """Spaces and return bounds."""
        size = 1 + self.delay + self.num_recalls
        return EnvSpec(
            "delayed-recall",
            Box((self.num_symbols + 2,), 0.0, 1.0),
            Discrete(self.num_symbols),
            return_bounds=(0.0, float(size)),
        )

    def reset(self, params: tuple[()], key: Key[Array, ""]) -> tuple[DelayedRecallState, TimeStep]:
        """Starts with a cue that is drawn anew."""
        cue, no = jax.random.randint(key, (), 0, self.num_symbols), jnp.zeros((), bool)
        state = DelayedRecallState(cue, cue, jnp.zeros((), "int32"))
        return state, TimeStep(self._observe(state), jnp.zeros(()), no, no)

    def step(
        self, state: DelayedRecallState, action: Int[Array, ""], key: Key[Array, ""]
    ) -> tuple[DelayedRecallState, TimeStep]:
        """Rewards the right action and shows the next symbol; the episode ends after the last recall."""
        reward = (action == state.answer).astype("float32")
        time = state.time + 1
        symbol = jax.random.randint(key, (), 0, self.num_symbols)
        state = DelayedRecallState(state.cue, jnp.where(time > self.delay, state.cue, symbol), time)
        terminated = time > self.delay + self.num_recalls
        return state, TimeStep(self._observe(state), reward, terminated, jnp.zeros((), bool))

    def cue_task(self) -> CueTask:
        """The cue matters at the first recall; no action changes what comes before."""
        return CueTask(self.delay + 1, 0, self.num_symbols, lambda state: state.cue)

    def _observe(self, state: DelayedRecallState) -> Float[Array, " size"]:
        is_recall = state.time > self.delay
        symbol = jax.nn.one_hot(state.answer, self.num_symbols) * (self.cue_visible | ~is_recall)
        return jnp.concatenate([symbol, jnp.stack([state.time == 0, is_recall]).astype("float32")])
