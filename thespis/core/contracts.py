"""The four contracts: Method, Feedback, Curriculum, Environment. Everything else is a choice of these.

Implementations are frozen ``equinox.Module``s whose functions are pure over pytrees, so that code which
does not know them can jit, vmap over seeds, checkpoint and resume them. Numbers that may vary in a sweep
are leaves; whatever changes a shape or a branch is a static field. ``name``, ``citations`` and ``details``
are what a run says of its parts: how they are called, where they come from, which details are on.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.feeds import Feed
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Outcomes, Report, TimeStep, Transition, View
from thespis.core.spaces import Space

State = TypeVar("State")
Policy = TypeVar("Policy")
Memory = TypeVar("Memory")


class Mode(enum.Enum):
    """How an actor plays: to learn, by its own distribution without added exploration, or its best."""

    EXPLORE = "explore"
    SAMPLE = "sampled"
    EXPLOIT = "greedy"


@runtime_checkable
class Method(Protocol[State, Policy, Memory]):
    """Actor, critic and learner of one agent."""

    name: ClassVar[str]
    citations: ClassVar[tuple[Citation, ...]]
    details: ClassVar[tuple[str, ...]]

    @property
    def feed(self) -> Feed:
        """What one update eats."""
        ...

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> State:
        """All that learning may change, and nothing else. Raises ``ValueError`` for spaces it cannot serve."""
        ...

    def policy(self, state: State, mode: Mode) -> Policy:
        """The slice of the state that an actor carries; how it plays is settled here."""
        ...

    def begin(self, policy: Policy, n: int) -> Memory:
        """Memory of ``n`` fresh episodes, leading axis ``n``; ``()`` if there is none."""
        ...

    def act(self, policy: Policy, memory: Memory, view: View, key: Key[Array, ""]) -> tuple[PyTree, Memory, PyTree]:
        """Canonical actions of ``n`` environments at once, the memory after them, and extras to store."""
        ...

    def judge(self, state: State, episode: Transition) -> Critique:
        """The critic's opinion of one episode ``[time]``; empty if there is no critic. Writes nothing."""
        ...

    def update(self, state: State, batch: Batch, key: Key[Array, ""]) -> tuple[State, Report]:
        """One update. Keeps the state's tree, shapes and dtypes."""
        ...


@runtime_checkable
class ForMany(Protocol):
    """What a method says that acts for all agents of a world at once; it takes worlds of many agents alone."""

    for_many: ClassVar[bool]


@runtime_checkable
class Feedback(Protocol[State]):
    """Where the learning signal comes from."""

    name: ClassVar[str]
    citations: ClassVar[tuple[Citation, ...]]

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> State:
        """What this signal learns."""
        ...

    def score(self, state: State, steps: Transition) -> Any:
        """The rewards, shape of ``steps.reward``, that update will see."""
        ...

    def update(self, state: State, batch: Batch, key: Key[Array, ""]) -> tuple[State, Report]:
        """Learn from the same batch, its rewards as the world gave them."""
        ...


@runtime_checkable
class Curriculum(Protocol[State]):
    """What the actor faces next."""

    name: ClassVar[str]
    citations: ClassVar[tuple[Citation, ...]]

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> State:
        """What this curriculum learns. Raises ``ValueError`` where the world lacks what it varies."""
        ...

    def draw(self, state: State, key: Key[Array, ""], n: int) -> PyTree:
        """Parameters of ``n`` episodes: the tree of ``spec.params`` with a leading axis ``n``."""
        ...

    def update(self, state: State, outcomes: Outcomes, key: Key[Array, ""]) -> tuple[State, Report]:
        """Learn from how the drawn episodes went."""
        ...


@runtime_checkable
class Seating(Protocol):
    """What a curriculum says that fills seats of a game: it draws in a world of its own making."""

    def learner(self, method: Method) -> Method:
        """Who learns in that world, made from the method that was asked for: itself, or many that learn by it."""
        ...

    def world(self, environment: Any, method: Method) -> Any:
        """The world in which ``method``, a :meth:`learner`, learns, made from the one that was asked for."""
        ...

    def player(self, method: Method, states: PyTree, member: int) -> tuple[Method, PyTree]:
        """A method for one seat and its states ``[seed]``: the ``member``-th of those in a learner's ``states``."""
        ...


@runtime_checkable
class Environment(Protocol):
    """A compiled world: pure functions of one episode, vmapped by the loop, which owns episode ends."""

    @property
    def spec(self) -> EnvSpec:
        """Spaces, limits and default parameters."""
        ...

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[PyTree, TimeStep]:
        """The start of one episode."""
        ...

    def step(self, state: PyTree, action: PyTree, key: Key[Array, ""]) -> tuple[PyTree, TimeStep]:
        """One step; never resets. ``action`` is in the world's units."""
        ...


@dataclasses.dataclass(frozen=True)
class Rules:
    """What is known of a game before it begins.

    ``observation`` is what one player sees; ``actions`` the number of choices, of which some are legal at a time;
    ``perfect``: all players see everything, and nothing but the players' moves decides what follows; ``longest`` is the
    largest number of moves (``None``: unknown).
    """

    name: str
    players: int
    observation: Space
    actions: int
    perfect: bool
    longest: int | None = None


@runtime_checkable
class Game(Protocol):
    """A compiled game in which players move in turn: pure functions of one position, to be vmapped.

    Players are numbered by the order in which they first move: player 0 begins.
    """

    @property
    def rules(self) -> Rules:
        """Players, spaces and limits."""
        ...

    def start(self, key: Key[Array, ""]) -> PyTree:
        """A first position, cards dealt."""
        ...

    def play(self, position: PyTree, action: Int[Array, ""], key: Key[Array, ""]) -> PyTree:
        """The position after a legal move of the player to move; a game that is over stays as it is."""
        ...

    def player(self, position: PyTree) -> Int[Array, ""]:
        """Whose move it is; meaningless once the game is over."""
        ...

    def observe(self, position: PyTree, player: Int[Array, ""]) -> PyTree:
        """What a player sees, also when it is another's move."""
        ...

    def legal(self, position: PyTree) -> Bool[Array, " actions"]:
        """What the player to move may do; never nothing."""
        ...

    def over(self, position: PyTree) -> Bool[Array, ""]:
        """Whether the game has ended."""
        ...

    def payoff(self, position: PyTree) -> Float[Array, " players"]:
        """What the last move brought to every player."""
        ...


@runtime_checkable
class HostEnvironment(Protocol):
    """``n`` worlds outside JAX, side by side, in numpy. They restart themselves; no filler step exists."""

    @property
    def spec(self) -> EnvSpec:
        """Spaces and limits of one world."""
        ...

    @property
    def n(self) -> int:
        """How many worlds there are."""
        ...

    def start(self, seeds: list[int]) -> TimeStep:
        """Begin a fresh episode in every world, world ``i`` seeded with ``seeds[i]``. Leading axis ``n``."""
        ...

    def step(self, actions: PyTree) -> tuple[TimeStep, View]:
        """What the actions led to, true final observations included, and the view to act on next.

        The two views differ exactly where an episode ended. ``actions`` are in the world's units.
        """
        ...

    def save(self) -> dict[str, Any] | None:
        """All that the worlds will do next, as named numpy arrays; ``None`` if these worlds cannot tell."""
        ...

    def load(self, saved: dict[str, Any]) -> None:
        """Put the worlds back to where :meth:`save` found them."""
        ...

    def close(self) -> None:
        """Release processes and windows."""
        ...
