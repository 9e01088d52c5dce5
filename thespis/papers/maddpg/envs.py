"""Speaker and listener: a team in which one agent knows the target and the other one can move.

After cooperative communication of Lowe et al., 2017 (the particle environment ``simple_speaker_listener``). Differs
from it: landmarks stand still at the corners of a triangle, and the listener moves by a fixed step, without inertia.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from thespis.core.records import AgentOutcome, EnvSpec, TimeStep
from thespis.core.spaces import AgentGroup, Box, Discrete, dict_space
from thespis.runtime.keys import fold

LANDMARKS = ((-0.8, -0.6), (0.8, -0.6), (0.0, 0.8))
"""Positions of the landmarks, in half sides of the square."""
MOVES = ((0.0, 0.0), (1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0))
"""Stay, right, left, up, down."""


class SpeakerListenerState(eqx.Module):
    """State of one episode: the target's index, the listener's position, the last word and the number of steps."""

    target: Int[Array, ""]
    position: Float[Array, " 2"]
    word: Int[Array, ""]
    time: Int[Array, ""]


class SpeakerListener(eqx.Module):
    """Speaker-listener environment: the speaker observes the target and says a word, the listener hears it and moves.

    There are two groups of one agent each. The ``speaker`` observes which landmark is the target, one-hot, and says one
    of as many words; words cost nothing. The ``listener`` observes its own position and the word of the step before,
    one-hot (zeros at first), and stays or moves by ``step_size``. The shared reward is minus the squared distance to
    the target. The target and the listener's start are uniform. Episodes are truncated after ``time_limit`` steps.
    """

    target_visible: bool = eqx.field(static=True, default=False)
    """Whether the listener hears the target itself instead of the word."""
    step_size: float = eqx.field(static=True, default=0.3)
    time_limit: int = eqx.field(static=True, default=12)

    @property
    def spec(self) -> EnvSpec:
        """Specification of the environment: its spaces and its time limit."""
        num_words = len(LANDMARKS)
        observations = dict_space(speaker=Box((num_words,), 0.0, 1.0), listener=Box((2 + num_words,), -1.0, 1.0))
        return EnvSpec(
            "speaker-listener",
            observations,
            dict_space(speaker=Discrete(num_words), listener=Discrete(len(MOVES))),
            time_limit=self.time_limit,
            groups=(AgentGroup("speaker", 1), AgentGroup("listener", 1)),
        )

    def reset(self, params: tuple[()], key: Key[Array, ""]) -> tuple[SpeakerListenerState, TimeStep]:
        """Draws the target and the listener's position; no word has been said."""
        target = jax.random.randint(fold(key, "target"), (), 0, len(LANDMARKS), "int32")
        position = jax.random.uniform(fold(key, "position"), (2,), minval=-1.0)
        state = SpeakerListenerState(target, position, jnp.int32(-1), jnp.int32(0))
        return state, self._time_step(state, jnp.zeros(()))

    def step(
        self, state: SpeakerListenerState, action: dict[str, Int[Array, " agent"]], key: Key[Array, ""]
    ) -> tuple[SpeakerListenerState, TimeStep]:
        """The listener moves, and the speaker's word is heard at the next step."""
        moved = state.position + self.step_size * jnp.asarray(MOVES)[action["listener"][0]]
        position = jnp.clip(moved, -1.0, 1.0)
        after = SpeakerListenerState(state.target, position, action["speaker"][0].astype("int32"), state.time + 1)
        return after, self._time_step(after, -jnp.sum((position - jnp.asarray(LANDMARKS)[state.target]) ** 2))

    def _time_step(self, state: SpeakerListenerState, reward: Float[Array, ""]) -> TimeStep:
        target = jax.nn.one_hot(state.target, len(LANDMARKS))
        heard = target if self.target_visible else jax.nn.one_hot(state.word, len(LANDMARKS))
        no = jnp.zeros(1, bool)
        return TimeStep(
            {"speaker": target[None], "listener": jnp.concatenate([state.position, heard])[None]},
            reward,
            no[0],
            state.time >= self.time_limit,
            alive={"speaker": ~no, "listener": ~no},
            agent_outcomes={name: AgentOutcome(reward[None], no) for name in ("speaker", "listener")},
        )


TARGET_VISIBLE = SpeakerListener(target_visible=True)
"""The listener knows the target, so that nothing is left to say."""
