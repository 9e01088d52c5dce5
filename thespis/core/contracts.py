"""The contracts (protocols) of the package; the four main ones are Method, Feedback, Curriculum and Environment.

Implementations are frozen ``equinox.Module``s whose functions are pure over pytrees, so that code which does not know
them can jit, vmap over seeds, checkpoint and resume them. Numbers that may vary in a sweep are leaves; whatever changes
a shape or a branch is a static field. ``name``, ``citations`` and ``details`` are what a run records about its parts:
their names, papers, and implementation details.

The other contracts are for methods of many agents, opponents in games, games, host environments, hindsight goal
relabelling where goals are part of the observation (:class:`GoalRelabeler`, and :class:`GoalRewards` for goals in
boxes), and policies whose action probabilities can be computed, for exact evaluation (:class:`HasActionProbs`).
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import Any, ClassVar, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.feeds import Feed
from thespis.core.records import (
    Batch,
    Citation,
    Critique,
    Draw,
    EnvSpec,
    EpisodeStats,
    Report,
    Rewards,
    TimeStep,
    Transition,
    View,
)
from thespis.core.spaces import Space

State = TypeVar("State")
Policy = TypeVar("Policy")
Memory = TypeVar("Memory")


class Mode(enum.Enum):
    """How an actor plays: to learn, by its own distribution without added exploration, or greedily."""

    EXPLORE = "explore"
    SAMPLE = "sampled"
    EXPLOIT = "greedy"


@runtime_checkable
class Method(Protocol[State, Policy, Memory]):
    """A learning algorithm: actor, critic and learner of one agent."""

    name: ClassVar[str]
    citations: ClassVar[tuple[Citation, ...]]
    details: ClassVar[tuple[str, ...]]

    @property
    def feed(self) -> Feed:
        """The data that one update consumes: rollouts, episodes, replay or a dataset."""
        ...

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> State:
        """The training state: everything that learning changes, and nothing else.

        Raises ``ValueError`` for spaces that the method does not support.
        """
        ...

    def policy(self, state: State, mode: Mode) -> Policy:
        """The part of the state that an actor needs; the mode of play is fixed here."""
        ...

    def init_memory(self, policy: Policy, n: int) -> Memory:
        """The actor's recurrent memory for ``n`` fresh episodes, leading axis ``n``; ``()`` if there is none."""
        ...

    def act(self, policy: Policy, memory: Memory, view: View, key: Key[Array, ""]) -> tuple[PyTree, Memory, PyTree]:
        """Canonical actions for ``n`` environments at once, the memory after them, and extras to store."""
        ...

    def judge(self, state: State, episode: Transition) -> Critique:
        """The critic's estimates for every step ``[time]``; empty if there is no critic. Changes nothing.

        The steps are those of one environment: one episode, or several one after another.
        """
        ...

    def update(self, state: State, batch: Batch, key: Key[Array, ""]) -> tuple[State, Report]:
        """One update. Keeps the state's tree, shapes and dtypes."""
        ...


@runtime_checkable
class MultiAgentMethod(Protocol):
    """A method that acts for all agents of an environment at once; it accepts multi-agent environments only."""

    multi_agent: ClassVar[bool]


@runtime_checkable
class HasSeats(Protocol):
    """A method made of one method for each seat of a conversation, where a seat is a group of one agent."""

    @property
    def methods(self) -> dict[str, Any]:
        """The methods by the names of their seats."""
        ...

    def map_seats(self, change: Callable[[str, Any], Any]) -> Any:
        """The method with ``change(name, method)`` as the method of each seat."""
        ...


@runtime_checkable
class HasLearningSwitch(Protocol):
    """A method that says whether updates change its state; one that does not say so learns."""

    learns: bool


def learns(method: Any) -> bool:
    """Whether a method changes its state in updates."""
    return not isinstance(method, HasLearningSwitch) or method.learns


@runtime_checkable
class Feedback(Protocol[State]):
    """The source of the reward that a method learns from: environment reward, bonus, discriminator, reward model."""

    name: ClassVar[str]
    citations: ClassVar[tuple[Citation, ...]]

    @property
    def feed(self) -> Feed | None:
        """Data of its own, such as demonstrations; ``None``: it learns from the method's batch alone."""
        ...

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> State:
        """The feedback's learned state."""
        ...

    def score(self, state: State, batch: Batch, key: Key[Array, ""]) -> Rewards:
        """The rewards that the method's update will see, for every step of the batch, masked ones included."""
        ...

    def update(self, state: State, batch: Batch, own_batch: Batch | None, key: Key[Array, ""]) -> tuple[State, Report]:
        """Learn from the method's batch, with the environment's own rewards, and from a batch of its own feed.

        Called ``feed.num_updates`` times after each update of the method, each time with another ``own_batch``; once
        and with ``None`` if there is no feed.
        """
        ...


@runtime_checkable
class UsesLogProbs(Protocol):
    """A feedback whose :meth:`Feedback.update` needs the log-probabilities of the actions in both of its batches.

    They are those of the method's updated policy, in ``steps.extras["log_prob"]``.
    """

    uses_log_probs: ClassVar[bool]


@runtime_checkable
class LimitsEnvKind(Protocol):
    """A feedback for one kind of environment alone; one without this attribute scores any."""

    env_kind: ClassVar[Literal["text", "control"]]
    """``text``: dialogues of one agent, with text as observation and as action; ``control``: no text in either."""


@runtime_checkable
class FitsMethod(Protocol):
    """A feedback that leaves settings to the method it serves, such as the language model that it starts from."""

    def for_method(self, method: Method) -> Feedback:
        """The feedback with the settings that it has left open set as in ``method``."""
        ...


@runtime_checkable
class LearnsReward(Protocol):
    """A method whose trained runs can be the feedback of other runs (``frozen:RUN``), such as a reward model."""

    reward_address: ClassVar[str]
    """The address of the trained state that the feedback needs, below ``method``."""

    def as_feedback(self) -> Feedback:
        """The feedback whose state is the trained one at that address."""
        ...


@runtime_checkable
class UsesStoredSteps(Protocol):
    """A method whose :meth:`Method.update` needs all stored steps beside the batch, such as to fit a model to them."""

    uses_stored_steps: ClassVar[bool]


@runtime_checkable
class HasLogProbs(Protocol):
    """A method that can compute the log-probabilities of given actions."""

    def log_probs(self, state: Any, steps: Transition) -> Float[Array, "time row"]:
        """Log-probabilities of the actions of ``steps[time, row]`` under the policy of ``Mode.SAMPLE``."""
        ...


@runtime_checkable
class Curriculum(Protocol[State]):
    """Chooses the parameters of the next episodes: levels, goals, tasks, domain parameters."""

    name: ClassVar[str]
    citations: ClassVar[tuple[Citation, ...]]
    needs_critique: ClassVar[bool]
    """Whether :meth:`update` needs the critic's estimates: a pass through the critic if the method reports none."""
    draws_per_rollout: ClassVar[bool]
    """Whether every block of a rollout begins with fresh draws in all environments, which then play the same level
    again where an episode ends early. Else every episode is drawn on its own."""

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> State:
        """The curriculum's learned state. Raises ``ValueError`` where the environment lacks what it varies."""
        ...

    def draw(self, state: State, key: Key[Array, ""], n: int) -> Draw:
        """Choose ``n`` episodes."""
        ...

    def update(
        self, state: State, rollout: Transition, critique: Critique | None, stats: EpisodeStats, key: Key[Array, ""]
    ) -> tuple[State, Report]:
        """Learn from a block ``[time, env]`` that was collected, before the method learns from it.

        ``stats`` says which episodes ended where, and of which level each step is; ``critique`` is what the critic says
        of every step, ``[time, env]``, if :attr:`needs_critique`.
        """
        ...


@runtime_checkable
class Levels(Protocol):
    """The levels of an environment, for curricula that search among them: pure functions of one level.

    A level is a tree of arrays: the environment's ``params``.
    """

    def sample(self, key: Key[Array, ""]) -> PyTree:
        """A random level."""
        ...

    def mutate(self, level: PyTree, key: Key[Array, ""], num_edits: int) -> PyTree:
        """The level after ``num_edits`` small random changes."""
        ...

    def solvable(self, level: PyTree) -> Bool[Array, ""]:
        """Whether the level can be solved at all."""
        ...

    def encode(self, level: PyTree) -> Array:
        """The level as a vector, the same for equal levels only."""
        ...


@runtime_checkable
class OpponentCurriculum(Protocol):
    """A curriculum that chooses the opponents in a game: it wraps the game in an environment of its own."""

    def make_learner(self, method: Method) -> Method:
        """The learner for that environment, made from the requested method: itself, or several copies of it."""
        ...

    def make_env(self, environment: Any, method: Method) -> Any:
        """The environment for ``method`` (from :meth:`make_learner`), made from the requested one."""
        ...

    def select_player(self, method: Method, states: PyTree, member: int) -> tuple[Method, PyTree]:
        """The method and states ``[seed]`` of one player: the ``member``-th of those in a learner's ``states``."""
        ...


@runtime_checkable
class Environment(Protocol):
    """A compiled environment: pure functions of one episode. The loop vmaps them and resets ended episodes."""

    @property
    def spec(self) -> EnvSpec:
        """Spaces, limits and default parameters."""
        ...

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[PyTree, TimeStep]:
        """Start one episode and return its state and first time step."""
        ...

    def step(self, state: PyTree, action: PyTree, key: Key[Array, ""]) -> tuple[PyTree, TimeStep]:
        """One step; never resets. ``action`` is in the environment's units."""
        ...


@dataclasses.dataclass(frozen=True)
class GameSpec:
    """Properties of a game that are known before it begins.

    ``observation_space`` is that of one player; ``num_actions`` the number of choices, of which some are legal at a
    time; ``perfect_information``: all players see everything, and only the players' moves decide what follows;
    ``max_game_length`` is the largest number of moves (``None``: unknown).
    """

    name: str
    num_players: int
    observation_space: Space
    num_actions: int
    perfect_information: bool
    max_game_length: int | None = None


@runtime_checkable
class Game(Protocol):
    """A compiled turn-based game: pure functions of one game state, to be vmapped.

    Players are numbered by the order in which they first move: player 0 begins.
    """

    @property
    def spec(self) -> GameSpec:
        """Players, spaces and limits."""
        ...

    def init(self, key: Key[Array, ""]) -> PyTree:
        """Sample an initial state; chance (such as dealt cards) included."""
        ...

    def step(self, state: PyTree, action: Int[Array, ""], key: Key[Array, ""]) -> PyTree:
        """The state after a legal move of the current player; a terminal state stays as it is."""
        ...

    def current_player(self, state: PyTree) -> Int[Array, ""]:
        """The player to move; meaningless in a terminal state."""
        ...

    def observe(self, state: PyTree, player: Int[Array, ""]) -> PyTree:
        """A player's observation, also when it is another player's turn."""
        ...

    def action_mask(self, state: PyTree) -> Bool[Array, " actions"]:
        """The legal actions of the current player; at least one is legal."""
        ...

    def is_terminal(self, state: PyTree) -> Bool[Array, ""]:
        """Whether the game has ended."""
        ...

    def rewards(self, state: PyTree) -> Float[Array, " players"]:
        """Each player's reward for the last move."""
        ...


@runtime_checkable
class HostEnvironment(Protocol):
    """A vector environment outside JAX: ``n`` environments in numpy that reset themselves when an episode ends.

    The last step of one episode and the first view of the next come in one call: no filler step exists.
    """

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limits of one environment."""
        ...

    @property
    def num_envs(self) -> int:
        """Number of environments that are stepped together."""
        ...

    def reset(self, seeds: list[int]) -> TimeStep:
        """Start a fresh episode in every environment; environment ``i`` gets ``seeds[i]``. Leading axis ``n``."""
        ...

    def step(self, actions: PyTree) -> tuple[TimeStep, View]:
        """The time step, with true final observations, and the view to act on next.

        The two views differ exactly where an episode ended. ``actions`` are in the environment's units.
        """
        ...

    def get_state(self) -> dict[str, Any] | None:
        """The complete simulator state as named numpy arrays; ``None`` if the environments cannot save theirs."""
        ...

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore the environments from what :meth:`get_state` returned."""
        ...

    def close(self) -> None:
        """Release processes and windows."""
        ...


@runtime_checkable
class HasEpisodeParams(Protocol):
    """A host environment whose episodes have parameters, which a curriculum can choose; ``spec.params``: the defaults.

    Single Gymnasium environments get them as ``reset(options=...)``.
    """

    def set_params(self, params: PyTree) -> None:
        """Parameters, leaves ``[n, ...]``, of the episodes that begin from now on in each environment."""
        ...


@runtime_checkable
class ReportsScores(Protocol):
    """A host environment whose learner sees other rewards and episodes than the task has, and which reports the task's.

    For example Atari games: the learner sees the signs of rewards, and an episode ends with the loss of a life.
    """

    def last_scores(self) -> tuple[Float[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
        """The task's rewards in the last step, and whether the task's episodes ended with it."""
        ...


@runtime_checkable
class GoalRelabeler(Protocol):
    """Relabels observations with another goal: pure functions of the observation, hashable.

    For environments whose dynamics do not depend on the goal, whose only reward is for reaching it, and whose episodes
    end there.
    """

    @property
    def goal_reward(self) -> float:
        """Reward for reaching the goal."""
        ...

    def achieved_goal(self, observation: PyTree) -> PyTree:
        """The goal that was achieved in the newest step."""
        ...

    def relabel(self, observation: PyTree, goal: PyTree) -> tuple[PyTree, Bool[Array, ""]]:
        """The observation under another goal, cut where that goal is reached, and whether it is reached by then."""
        ...


@runtime_checkable
class GoalRewards(Protocol):
    """Reward and termination as functions of the achieved and the desired goal: pure functions of JAX, hashable.

    For environments with dict observations of ``observation``, ``achieved_goal`` and ``desired_goal``, whose dynamics
    do not depend on the goal. Its goals are those after a step; episodes may go on at the goal.
    """

    def compute_reward(self, achieved_goal: PyTree, desired_goal: PyTree) -> Float[Array, ""]:
        """The reward of a step that achieved one goal while another was desired."""
        ...

    def compute_terminated(self, achieved_goal: PyTree, desired_goal: PyTree) -> Bool[Array, ""]:
        """Whether the goal ends the episode with that step."""
        ...


PolicyInput = TypeVar("PolicyInput", contravariant=True)
MemoryInput = TypeVar("MemoryInput", contravariant=True)


class RecomputableMemory:
    """Marker: memory that is only a cache. A fresh one gives the same actions, since the observation has everything."""


@runtime_checkable
class HasActionProbs(Protocol[PolicyInput, MemoryInput]):
    """A method with one discrete action (or a list of responses) whose action probabilities can be computed."""

    def action_probs(self, policy: PolicyInput, memory: MemoryInput, view: View) -> PyTree:
        """Probabilities of all actions that ``act`` would sample from: floats with the axes of ``view.action_mask``.

        They depend on the policy's mode: a greedy one has probability 1 for one action. Raises ``UserError`` where the
        action is no single discrete choice.
        """
        ...
