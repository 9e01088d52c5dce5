"""Atari games of the Arcade Learning Environment (``ale-py``), preprocessed as in DQN, stepped by threads in C++.

The preprocessing is that of Mnih et al. (2015), with the options of :class:`AtariOptions`; the screen is reduced by the
vector environment of ``ale-py``. What changes the task, rather than the observation, is done here: the end of an
episode with the loss of a life, and the sign of the reward, in training only. The vector environment would start a new
game after the loss of a life; here the game goes on, as in the wrappers of OpenAI Baselines and Stable-Baselines3.

A game that needs FIRE to continue gets it at its start and after the loss of a life, in training and evaluation: the
button takes the place of the agent's next action.

A seed determines the games that follow it, together with their actions. So the state of an environment is its seed and
the actions since; to restore it, they are played again. A new seed is set from time to time, as this takes as long as
hundreds of steps.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from thespis.core.errors import UserError, missing_extra
from thespis.core.records import EnvSpec, TimeStep, View, make_time_step
from thespis.envs.host import conversion
from thespis.envs.libraries import is_installed
from thespis.envs.options import add_options
from thespis.envs.space_conversion import from_gymnasium

RESEED_INTERVAL = 2_000
"""Steps after which an environment's next game gets a new seed."""


@dataclasses.dataclass(frozen=True)
class AtariOptions:
    """Options of an Atari game, with the usual values; those of the game's registered name have precedence."""

    frame_skip: int = 4
    """Frames for which an action is repeated; an observation is the maximum of the last two."""
    frame_stack: int = 4
    """Observations that the agent sees at once, oldest first."""
    screen_size: int = 84
    """Height and width of an observation in pixels of one grey byte."""
    noop_max: int = 30
    """Largest number of frames without action at the start of a game; it is drawn evenly, from 0."""
    fire_reset: bool = True
    """Press FIRE at the start of a game and after the loss of a life, in games that have this button."""
    terminal_on_life_loss: bool = True
    """In training, an episode ends with the loss of a life; the game goes on. Evaluation plays whole games."""
    clip_reward: bool = True
    """In training, a reward is replaced by its sign. Evaluation reports the game's score."""
    repeat_action_probability: float = 0.0
    """Probability of each frame to repeat the previous action ("sticky actions", Machado et al., 2018); the registered
    value is 0.25 for the names ``ALE/...-v5`` and 0 for ``...NoFrameskip-v4``."""
    full_action_space: bool = False
    """All 18 actions of the console, instead of those that the game uses."""
    max_num_frames_per_episode: int = 108_000
    """Frames after which a game is truncated: half an hour."""


def is_atari(name: str) -> bool:
    """Whether Gymnasium's environment of this name is a game of ``ale-py``. Raises ``UserError`` if that is missing."""
    import gymnasium

    if not name.startswith("ALE/"):
        spec = gymnasium.registry.get(name)
        return spec is not None and str(spec.entry_point).startswith("ale_py.")
    if not is_installed("ale_py"):
        raise missing_extra("ale-py", "atari")
    import ale_py as ale_py  # registers its environments

    return name in gymnasium.registry


class AtariEnv:
    """Vector environment of ``num_envs`` copies of an Atari game, a :class:`~thespis.core.contracts.HostEnvironment`.

    ``name``: Gymnasium's, such as ``ALE/Breakout-v5``; ``options``: fields of :class:`AtariOptions`. Observations are
    ``uint8[frame_stack, screen_size, screen_size]``. ``num_threads``: threads that step the games (1 or less: one per
    core); results do not depend on it. While ``training``, it is a
    :class:`~thespis.core.contracts.ReportsScores`: scores are those of whole games.

    Raises:
        UserError: for an option that does not exist, or a game with random frame skips.
    """

    def __init__(
        self, name: str, options: dict[str, Any], num_envs: int, *, num_threads: int = 1, training: bool = False
    ):
        self._num_envs, self._training = num_envs, training
        options = {key: value for key, value in options.items() if key != "preprocess"}
        game, self.options = _resolve_options(name, options)
        self._env: Any = _make_vector_env(game, num_envs, self.options, num_threads if num_threads > 1 else 0)
        space = self._env.single_observation_space
        self._read = conversion.observation_reader(space, (num_envs,))
        self._spec = EnvSpec(
            add_options(f"gymnasium:{name}", options),
            from_gymnasium(space),
            from_gymnasium(self._env.single_action_space),
            time_limit=math.ceil(self.options.max_num_frames_per_episode / self.options.frame_skip),
        )
        self._fire_action = _fire_action(self._env) if self.options.fire_reset else None
        self._history: _History | None = None
        self._scores, self._game_over = np.zeros(num_envs, "float32"), np.zeros(num_envs, bool)

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limits of one environment."""
        return self._spec

    @property
    def num_envs(self) -> int:
        """The number of environments."""
        return self._num_envs

    def reset(self, seeds: list[int]) -> TimeStep:
        """Start a game in every environment; ``seeds[i]`` determines all games of environment ``i``."""
        conversion.check_seeds(seeds, self._num_envs)
        self._history = history = _History(np.array([int(seed) for seed in seeds], "uint64"))
        observation, info = self._env.reset(seed=history.game_seeds())
        history.lives = info["lives"].copy()
        false = np.zeros(self._num_envs, bool)
        return TimeStep(self._read(observation), np.zeros(self._num_envs, "float32"), false, false.copy())

    def step(self, actions: Any) -> tuple[TimeStep, View]:
        """The transitions that the actions lead to, and the next view to act on."""
        if (history := self._history) is None:
            raise UserError(f"{self._spec.name} is stepped before its first reset")
        actions = conversion.check_actions(self._spec.action_space, actions, self._num_envs)
        if self._fire_action is not None:
            actions = np.where(history.life_lost, np.int32(self._fire_action), actions)
        history.record(actions)
        observation, rewards, terminated, truncated, info = self._env.step(actions)
        self._scores, self._game_over = rewards.astype("float32"), terminated | truncated
        history.life_lost = (info["lives"] < history.lives) & (info["lives"] > 0) & ~self._game_over
        history.lives = info["lives"].copy()
        if self._training and self.options.clip_reward:
            rewards = np.sign(rewards)
        if self._training and self.options.terminal_on_life_loss:
            terminated = terminated | history.life_lost
        observation = self._read(observation)
        step = make_time_step(observation, rewards.astype("float32"), terminated, truncated, None)
        if not self._game_over.any():
            return step, step.view
        observation, info = self._reset_some(self._game_over, history.next_seeds(self._game_over))
        history.lives = info["lives"].copy()
        return step, View(self._read(observation))

    def _reset_some(self, which: np.ndarray, seeds: np.ndarray) -> Any:
        """Start a game in some environments, with a new seed where it is not negative; the observations of all."""
        return self._env.reset(seed=seeds[which], options={"reset_mask": which})

    def last_scores(self) -> tuple[np.ndarray, np.ndarray]:
        """The game's rewards in the last step, and whether the game was over."""
        return self._scores, self._game_over

    def get_state(self) -> dict[str, np.ndarray] | None:
        """Seeds and the actions since; ``None`` before the first reset."""
        return None if self._history is None else self._history.to_arrays()

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Restore the games from the state that :meth:`get_state` returned, by playing their actions again."""
        history = _History.from_arrays(state)
        seeds, no_seeds, (actions, starts) = history.game_seeds(), np.full(self._num_envs, -1), history.segments()
        self._env.reset(seed=seeds)
        for t in range(len(actions) + 1):
            if t and (begins := starts == t).any():
                self._reset_some(begins, seeds)
            if t < len(actions):
                _, _, terminated, truncated, _ = self._env.step(actions[t])
                if (over := (terminated | truncated) & (starts <= t)).any():
                    self._reset_some(over, no_seeds)
        self._history = history

    def close(self) -> None:
        """Stop the threads and release the games."""
        self._env = None


class _History:
    """What determines the games of each environment: its seed, how often a new one was set, and the actions since.

    ``lives`` are those left in the current games; ``life_lost``: one was lost with the last step.
    """

    def __init__(self, seeds: np.ndarray):
        self.lives, self.life_lost = np.zeros(len(seeds), "int32"), np.zeros(len(seeds), bool)
        self._seeds, self._num_seeded = seeds, np.zeros(len(seeds), "int64")
        self._actions: list[np.ndarray] = []
        self._starts = np.zeros(len(seeds), "int64")  # index in the list of each one's first action after its seed

    def game_seeds(self) -> np.ndarray:
        """The seed that was set last in each environment."""
        pairs = zip(self._seeds.tolist(), self._num_seeded.tolist(), strict=True)
        words = [np.random.SeedSequence(pair).generate_state(1)[0] for pair in pairs]
        return np.array(words, "uint32").astype("int64") & 0x7FFFFFFF

    def record(self, actions: np.ndarray) -> None:
        """Add the actions of a step."""
        self._actions.append(actions.astype("uint8"))

    def next_seeds(self, game_over: np.ndarray) -> np.ndarray:
        """Where a game is over: a new seed if it is due, else -1."""
        due = game_over & (len(self._actions) - self._starts >= RESEED_INTERVAL)
        if not due.any():
            return np.full(len(due), -1)
        self._num_seeded = self._num_seeded + due
        self._starts = np.where(due, len(self._actions), self._starts)
        if oldest := int(self._starts.min()):
            del self._actions[:oldest]
            self._starts -= oldest
        return np.where(due, self.game_seeds(), -1)

    def segments(self) -> tuple[np.ndarray, np.ndarray]:
        """The actions ``int32[step, env]`` since the oldest seed was set, and the step at which each was set."""
        return np.array(self._actions, "int32").reshape(-1, len(self._seeds)), self._starts

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The history as named arrays."""
        return {
            "seeds": self._seeds.copy(),
            "num_seeded": self._num_seeded.copy(),
            "lives": self.lives.copy(),
            "life_lost": self.life_lost.copy(),
            "actions": self.segments()[0].astype("uint8"),
            "starts": self._starts.copy(),
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> _History:
        """The history that :meth:`to_arrays` has written."""
        history = cls(np.array(arrays["seeds"]))
        history._num_seeded, history._starts = np.array(arrays["num_seeded"]), np.array(arrays["starts"])
        history.lives, history.life_lost = np.array(arrays["lives"]), np.array(arrays["life_lost"])
        history._actions = list(np.array(arrays["actions"]))
        return history


def _resolve_options(name: str, options: dict[str, Any]) -> tuple[str, AtariOptions]:
    """The game's name in ``ale-py``, and all options."""
    import gymnasium

    registered = dict(gymnasium.registry[name].kwargs)
    fields = {field.name for field in dataclasses.fields(AtariOptions)}
    if unknown := sorted(set(options) - fields):
        raise UserError(
            f"{name} has no option {unknown[0]!r}: its options are preprocess, {', '.join(sorted(fields))}; "
            "with preprocess=False those of Gymnasium's environment"
        )
    if not isinstance(registered["frameskip"], int):
        raise UserError(f"{name} skips frames at random: use ALE/...-v5 or ...NoFrameskip-v4, or preprocess=False")
    chosen = AtariOptions(**({key: registered[key] for key in fields & set(registered)} | options))
    if min(chosen.frame_skip, chosen.frame_stack, chosen.screen_size) < 1 or chosen.noop_max < 0:
        raise UserError(f"{name}: frame_skip, frame_stack and screen_size must be at least 1, noop_max at least 0")
    return registered["game"], chosen


def _make_vector_env(game: str, num_envs: int, options: AtariOptions, num_threads: int) -> Any:
    from ale_py.vector_env import AtariVectorEnv

    return AtariVectorEnv(
        game,
        num_envs,
        num_threads=num_threads,
        max_num_frames_per_episode=options.max_num_frames_per_episode,
        repeat_action_probability=options.repeat_action_probability,
        full_action_space=options.full_action_space,
        img_height=options.screen_size,
        img_width=options.screen_size,
        stack_num=options.frame_stack,
        frameskip=options.frame_skip,
        noop_max=options.noop_max + 1,  # it draws from 0 to one less
        reward_clipping=False,
        use_fire_reset=options.fire_reset,
    )


def _fire_action(env: Any) -> int | None:
    """Index of FIRE among the game's actions, if it has this button."""
    import ale_py

    actions = list(env.ale.get_action_set())
    return actions.index(ale_py.Action.FIRE) if ale_py.Action.FIRE in actions else None
