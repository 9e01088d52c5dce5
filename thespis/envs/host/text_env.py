"""User-defined text environments with messages and responses as strings, as vector environments of tokens.

A user writes three members: ``max_turns``, how many responses an episode allows; ``reset(rng)``, which returns the
first message; ``step(response)``, which returns ``(message, reward, done)``. With ``words``, a list of all words in
use, it needs no tokenizer; without them messages are formatted by the actor's checkpoint. ``demonstrate()``, which
returns a sensible response to the last message, is for environments that provide demonstrations.

A Gymnasium environment with string observations and actions (``gymnasium.spaces.Text``) becomes such an environment by
:class:`GymnasiumTextEnv`.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np

from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, TimeStep, View, make_time_step, make_view
from thespis.core.spaces import Text
from thespis.envs.host.formatters import DialogueFormatter, FormatterFactory, WordFormatter

DEFAULT_MAX_TOKENS = {"message": 64, "response": 16}
"""Tokens of the longest message and response, where an environment does not specify them."""


@runtime_checkable
class StringEnv(Protocol):
    """One environment with string messages and string responses."""

    max_turns: int

    def reset(self, rng: np.random.Generator) -> str:
        """Start an episode; returns the first message."""
        ...

    def step(self, response: str) -> tuple[str, float, bool]:
        """The next message, the reward, and whether the episode is over."""
        ...


@runtime_checkable
class HasWords(Protocol):
    """A string environment with a vocabulary of its own."""

    words: Any


@runtime_checkable
class HasMaxTokens(Protocol):
    """A string environment that specifies the number of tokens of its longest message and of a response."""

    max_message_tokens: int
    max_response_tokens: int


class StringVectorEnv:
    """``num_envs`` string environments behind the host interface.

    An environment that raises, or takes longer than ``timeout`` seconds for a message, has its episode truncated
    without a reward; it is created anew, counted, and reported by :meth:`pop_warnings`.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        num_envs: int,
        name: str,
        timeout: float = 60.0,
        make_formatter: FormatterFactory = None,
    ):
        self._make, self._num_envs, self._name, self._timeout = make, num_envs, name, timeout
        self._env_threads = [_EnvThread(make()) for _ in range(num_envs)]
        first = self._env_threads[0].env
        self._formatter = _choose_formatter(first, name, make_formatter)
        sizes = (
            (first.max_message_tokens, first.max_response_tokens)
            if isinstance(first, HasMaxTokens)
            else tuple(DEFAULT_MAX_TOKENS.values())
        )
        self._max_message_tokens, self._max_response_tokens = sizes
        self._max_turns = int(self._env_threads[0].env.max_turns)
        self._dialogues: list[Any] = [self._formatter.empty] * num_envs
        self._turn = np.zeros(num_envs, int)
        self._rngs: list[np.random.Generator] = []
        self._errors: list[str] = []
        self._num_truncated_tokens: list[int] = []

    @property
    def spec(self) -> EnvSpec:
        """Observations are transcripts, actions are responses."""
        vocabulary, message_tokens = self._formatter.vocabulary, self._max_message_tokens + 1
        length = self._max_message_tokens + self._max_turns * (self._max_response_tokens + message_tokens)
        return EnvSpec(
            self._name,
            Text(length, vocabulary, message_tokens),
            Text(self._max_response_tokens, vocabulary),
            time_limit=self._max_turns,
        )

    @property
    def num_envs(self) -> int:
        """The number of environments."""
        return self._num_envs

    def reset(self, seeds: list[int]) -> TimeStep:
        """Start an episode in every environment, environment ``i`` with a generator seeded by ``seeds[i]``."""
        self._rngs = [np.random.default_rng(seed) for seed in seeds]
        for i in range(self._num_envs):
            self._reset_env(i)
        zeros, false = np.zeros(self._num_envs, "float32"), np.zeros(self._num_envs, bool)
        return make_time_step(self._transcripts(), zeros, false, false, None)

    def step(self, actions: Any) -> tuple[TimeStep, View]:
        """Send a response to each environment and collect their messages."""
        responses = [[int(i) for i in row if i >= 0] for row in np.asarray(actions)]
        for env_thread, tokens in zip(self._env_threads, responses, strict=True):
            env_thread.send(self._formatter.decode(tokens))
        reward, done, failed = (
            np.zeros(self._num_envs, "float32"),
            np.zeros(self._num_envs, bool),
            np.zeros(self._num_envs, bool),
        )
        for i, env_thread in enumerate(self._env_threads):
            self._dialogues[i] = self._formatter.add_response(self._dialogues[i], responses[i])
            try:
                message, reward[i], done[i] = env_thread.receive(self._timeout)
            except Exception as error:
                failed[i] = True
                self._restart_env(i, error)
                continue
            if not done[i]:
                self._add_message(i, message)
        self._turn += 1
        # The number of turns can be counted in the observation: the end is a termination, not a truncation.
        done |= ~failed & (self._turn >= self._max_turns)
        time_step = make_time_step(self._transcripts(), reward, done, failed, None)
        for i in np.flatnonzero(done | failed):
            self._reset_env(int(i))
        return time_step, make_view(self._transcripts(), None)

    def get_state(self) -> dict[str, Any] | None:
        """``None``: the state of a user's environment is not accessible."""
        return None

    def set_state(self, state: dict[str, Any]) -> None:
        """Never called, as nothing is saved."""

    def close(self) -> None:
        """Stop the threads without waiting for them."""
        for env_thread in self._env_threads:
            env_thread.stop()

    def pop_warnings(self) -> list[str]:
        """Failed episodes and truncated messages since the last call, one line for each kind."""
        counts = {line: self._errors.count(line) for line in dict.fromkeys(self._errors)}
        lines = [f"{count} episodes of {self._name} were cut: {line}" for line, count in counts.items()]
        if self._num_truncated_tokens:
            longest = max(self._num_truncated_tokens)
            lines.append(
                f"{len(self._num_truncated_tokens)} messages of {self._name} were cut, the longest by {longest} "
                f"tokens: give it max_message_tokens = {self._max_message_tokens + longest} or more"
            )
        self._errors, self._num_truncated_tokens = [], []
        return lines

    def demonstrator_action(self) -> list[list[int]]:
        """The demonstration of each environment in its present state, as tokens with an end token.

        Raises ``UserError`` for environments without demonstrations.
        """
        demonstrations = []
        for env_thread in self._env_threads:
            has_demonstrator = isinstance(env_thread.env, StringEnvWithDemonstrator)
            if not has_demonstrator or not isinstance(self._formatter, WordFormatter):
                raise UserError(f"{self._name} has no words or no demonstrate() to train a tiny model on")
            words, vocabulary = env_thread.env.demonstrate(), self._formatter.vocabulary
            if unknown := [word for word in words.split() if word not in vocabulary.words]:
                raise UserError(f"{self._name}: demonstrate() says {unknown[0]!r}, which is none of its words")
            demonstrations.append([*self._formatter.encode(words), *vocabulary.eos_tokens[:1]])
        return demonstrations

    def _reset_env(self, i: int) -> None:
        self._dialogues[i], self._turn[i] = self._formatter.empty, 0
        try:
            message = str(self._env_threads[i].env.reset(self._rngs[i]))
        except Exception as error:
            raise UserError(f"{self._name} cannot start an episode: {type(error).__name__}: {error}") from error
        self._add_message(i, message)

    def _add_message(self, i: int, message: str) -> None:
        self._dialogues[i], num_cut = self._formatter.add_message(self._dialogues[i], message, self._max_message_tokens)
        if num_cut:
            self._num_truncated_tokens.append(num_cut)

    def _transcripts(self) -> np.ndarray:
        """All transcripts ``[row, length]``, padded with -1."""
        transcripts = np.full((self._num_envs, self.spec.observation_space.max_length), -1, "int32")  # pyright: ignore
        for row, dialogue in zip(transcripts, self._dialogues, strict=True):
            row[: len(dialogue.tokens)] = dialogue.tokens
        return transcripts

    def _restart_env(self, i: int, error: BaseException) -> None:
        timed_out = isinstance(error, queue.Empty)
        self._errors.append(f"no answer in {self._timeout:g} s" if timed_out else f"{type(error).__name__}: {error}")
        self._env_threads[i].stop()
        self._env_threads[i] = _EnvThread(self._make())


def _choose_formatter(env: Any, name: str, make_formatter: FormatterFactory) -> DialogueFormatter:
    """The formatter of the actor, or that of the environment's own words if the actor uses these or brings none."""
    word_formatter = WordFormatter(env.words) if isinstance(env, HasWords) else None
    formatter = (
        None if make_formatter is None else make_formatter(word_formatter.vocabulary.words if word_formatter else ())
    )
    if formatter is None and word_formatter is None:
        raise UserError(
            f"{name} has no vocabulary: give it `words`, a list of all words in use, or a model that has a "
            "tokenizer (--model DIR)"
        )
    return formatter or word_formatter  # pyright: ignore


class _EnvThread:
    """An environment in a thread of its own: one that hangs is abandoned, and does not keep the process alive."""

    def __init__(self, env: Any):
        self.env = env
        self._responses: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def send(self, response: str) -> None:
        """Send a response; its result is fetched by :meth:`receive`."""
        self._responses.put(response)

    def receive(self, timeout: float) -> tuple[str, float, bool]:
        """The result of the last response.

        Raises what the environment raised, or ``queue.Empty`` after ``timeout`` seconds.
        """
        result = self._answers.get(timeout=timeout)
        if isinstance(result, BaseException):
            raise result
        return result

    def stop(self) -> None:
        """Stop the thread after the current response."""
        self._responses.put(None)

    def _run(self) -> None:
        while (response := self._responses.get()) is not None:
            try:
                message, reward, done = self.env.step(response)
                self._answers.put((str(message), float(reward), bool(done)))
            except Exception as error:
                self._answers.put(error)


@runtime_checkable
class StringEnvWithDemonstrator(Protocol):
    """A string environment that provides demonstrations."""

    def demonstrate(self) -> str:
        """A sensible response to the last message."""
        ...


DEFAULT_MAX_TURNS = 16
"""Responses per episode where an environment has no limit of steps."""
# Upper limits of tokens; the last is what a chat template may add.
_MAX_MESSAGE_TOKENS, _MAX_RESPONSE_TOKENS, _MAX_TEMPLATE_TOKENS = 256, 32, 64


def has_text_spaces(env: Any) -> bool:
    """Whether an environment's observations and actions are strings. Raises ``UserError`` if only one of them is."""
    import gymnasium.spaces as g

    spaces = getattr(env, "observation_space", None), getattr(env, "action_space", None)
    text_observations, text_actions = (isinstance(space, g.Text) for space in spaces)
    if text_observations != text_actions:
        raise UserError(f"{env}: observations and actions must both be gymnasium.spaces.Text, or neither")
    return text_observations


class GymnasiumTextEnv:
    """One environment as a :class:`StringEnv`; truncated episodes end like any other.

    ``words``, ``max_message_tokens`` and ``max_response_tokens`` are the environment's own, if it has them; otherwise
    sizes follow from those of the spaces, a character being one token at most. What the action space does not allow
    (characters, length) is removed from a response.
    """

    def __init__(self, env: Any):
        import gymnasium

        registered = isinstance(env, gymnasium.Env)
        self.env, inner, spec = env, env.unwrapped if registered else env, env.spec if registered else None
        self.max_turns = (
            int(spec.max_episode_steps) if spec is not None and spec.max_episode_steps else DEFAULT_MAX_TURNS
        )
        self.max_message_tokens = min(env.observation_space.max_length, _MAX_MESSAGE_TOKENS) + _MAX_TEMPLATE_TOKENS
        self.max_response_tokens = min(env.action_space.max_length + 1, _MAX_RESPONSE_TOKENS)
        if isinstance(inner, HasMaxTokens):
            self.max_message_tokens, self.max_response_tokens = inner.max_message_tokens, inner.max_response_tokens
        if isinstance(inner, HasWords):
            self.words = inner.words

    def reset(self, rng: np.random.Generator) -> str:
        """Start an episode and return its first observation."""
        return self.env.reset(seed=int(rng.integers(2**31)))[0]

    def step(self, response: str) -> tuple[str, float, bool]:
        """Step the environment with a response."""
        space = self.env.action_space
        if not space.contains(response):
            response = "".join(letter for letter in response if letter in space.character_set)[: space.max_length]
        message, reward, terminated, truncated, _ = self.env.step(response)
        return message, float(reward), bool(terminated or truncated)
