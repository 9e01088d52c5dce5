"""Worlds of many agents on the host, stepped one after another, whatever library they come from.

We begin the next episode ourselves, so the true last observation is at hand.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from thespis.core.agents import per_group
from thespis.core.errors import UserError
from thespis.core.records import Each, EnvSpec, TimeStep, View
from thespis.core.spaces import Discrete, MultiDiscrete, Space, Tree, dtype_of, legal_size, map_space, shape_of
from thespis.envs.alike import Members
from thespis.envs.host import values


@dataclasses.dataclass(frozen=True)
class Told:
    """What one world told, by agent in the world's own order.

    ``observation`` is ``None`` for an agent that has gone or not come yet; ``legal`` where nothing is masked.
    ``alive``: who decides now; ``gone``: whose part ended with this step; ``reward``: what it brought; ``counts``: what
    the run reports of it.
    """

    observation: list[Any]
    legal: list[Any]
    alive: np.ndarray
    gone: np.ndarray
    reward: np.ndarray
    counts: float
    terminated: bool = False
    truncated: bool = False

    @property
    def ended(self) -> bool:
        """Whether the episode is over."""
        return self.terminated or self.truncated


class World(Protocol):
    """One world of a library."""

    @property
    def spec(self) -> EnvSpec:
        """Groups and their spaces."""
        ...

    @property
    def members(self) -> Members:
        """Who is in which group."""
        ...

    def begin(self, seed: int | None) -> Told:
        """A fresh episode; a seed begins a new stream of episodes."""
        ...

    def step(self, actions: list[Any]) -> Told:
        """All agents' actions in the world's units, by agent; those of who is not alive mean nothing."""
        ...

    def save(self) -> dict[str, np.ndarray] | None:
        """All that the world will do next; ``None`` if it cannot tell."""
        ...

    def load(self, saved: dict[str, np.ndarray]) -> None:
        """Back to where :meth:`save` was called; the world may be a fresh one."""
        ...

    def close(self) -> None:
        """Release windows."""
        ...


class Many:
    """Single worlds of many agents as one :class:`~thespis.core.contracts.HostEnvironment`.

    Raises:
        UserError: whenever a world raises or answers what its spaces do not allow.
    """

    def __init__(self, worlds: list[Any]):
        self._worlds: list[World] = worlds
        self._spec, self._members, self._steps = worlds[0].spec, worlds[0].members, 0

    @property
    def spec(self) -> EnvSpec:
        """Groups and spaces of one world."""
        return self._spec

    @property
    def n(self) -> int:
        """How many worlds there are."""
        return len(self._worlds)

    def start(self, seeds: list[int]) -> TimeStep:
        """Begin a fresh episode in every world, world ``i`` seeded with ``seeds[i]``."""
        if len(seeds) != self.n:
            raise UserError(f"{self.n} worlds need {self.n} seeds, not {len(seeds)}")
        self._steps = 0
        return self._stack([self._begin(i, int(seed)) for i, seed in enumerate(seeds)])

    def step(self, actions: Any) -> tuple[TimeStep, View]:
        """What the actions led to, and the view to act on next; actions in the world's units."""

        def check(space: Space, axes: tuple[int, ...], given: Any) -> Any:
            return values.check_actions(space, given, self.n, axes)

        actions = per_group(self._spec.groups, self._spec.action, check, actions)
        self._steps += 1
        led = [self._step(i, actions) for i in range(self.n)]
        step = self._stack(led)
        if not any(told.ended for told in led):
            return step, step.view
        return step, self._stack([self._begin(i) if told.ended else told for i, told in enumerate(led)]).view

    def save(self) -> dict[str, Any] | None:
        """The states of all worlds as named arrays; ``None`` if one of them cannot tell."""
        found: dict[str, Any] = {"steps": np.asarray(self._steps)}
        for i, world in enumerate(self._worlds):
            own = world.save()
            if own is None:
                return None
            found |= {f"{i}/{name}": value for name, value in own.items()}
        return found

    def load(self, saved: dict[str, Any]) -> None:
        """Put the worlds back to where :meth:`save` found them."""
        self._steps = int(saved["steps"])
        for i, world in enumerate(self._worlds):
            world.load({name.partition("/")[2]: v for name, v in saved.items() if name.startswith(f"{i}/")})

    def close(self) -> None:
        """Close the worlds."""
        for world in self._worlds:
            world.close()

    def _begin(self, i: int, seed: int | None = None) -> Told:
        return self._call(i, "reset", lambda: self._worlds[i].begin(seed))

    def _step(self, i: int, actions: dict[str, Any]) -> Told:
        asked: list[Any] = [None] * sum(len(places) for _, places in self._members)
        spaces = _parts(self._spec.action)
        for group, places in self._members:
            for j, place in enumerate(places):
                asked[place] = map_space(lambda part, x, j=j: x[i, j], spaces[group], actions[group])
        return self._call(i, "step", lambda: self._worlds[i].step(asked))

    def _call(self, i: int, what: str, play: Callable[[], Told]) -> Told:
        try:
            told = play()
            if not np.isfinite(told.reward).all():
                raise UserError(f"a reward is not finite: {told.reward}")
            return told
        except UserError as error:
            raise UserError(f"{self._spec.name}, world {i}, {what} {self._steps}: {error}") from error
        except Exception as error:
            raised = f"raised {type(error).__name__}: {error}"
            raise UserError(f"{self._spec.name}, world {i}, {what} {self._steps}, {raised}") from error

    def _stack(self, told: list[Told]) -> TimeStep:
        spec = self._spec
        seen, legal, alive, each = {}, {}, {}, {}
        for group, places in self._members:
            space, choices = _parts(spec.observation)[group], _parts(spec.action)[group]
            rows = [[_or_zeros(space, t.observation[p]) for p in places] for t in told]
            seen[group] = values.stack(space, [values.stack(space, row) for row in rows])
            mine = list(places)
            alive[group] = np.stack([t.alive[mine] for t in told])
            each[group] = Each(
                np.stack([t.reward[mine] for t in told]).astype("float32"), np.stack([t.gone[mine] for t in told])
            )
            if spec.legal:
                masks = [[_mask(choices, t.legal[p], bool(t.alive[p])) for p in places] for t in told]
                legal[group] = values.stack_legal(choices, [values.stack_legal(choices, row) for row in masks])
        return TimeStep(
            seen,
            np.array([t.counts for t in told], "float32"),
            np.array([t.terminated for t in told]),
            np.array([t.truncated for t in told]),
            legal or None,
            alive=alive,
            each=each,
        )


def _parts(space: Space) -> dict[str, Space]:
    assert isinstance(space, Tree)
    return dict(space.parts)


def _or_zeros(space: Space, value: Any) -> Any:
    if value is not None:
        return value
    return map_space(lambda part: np.zeros(shape_of(part), dtype_of(part)), space)


def _mask(space: Space, mask: Any, alive: bool) -> Any:
    """What an agent may do: the first of each choice where it does not decide, all where nothing is said."""

    def leaf(part: Space, given: Any) -> Any:
        match part:
            case Discrete(n):
                whole, first = np.ones(n, bool), np.arange(n) == 0
            case MultiDiscrete(nvec):
                whole, first = np.ones(legal_size(part), bool), np.concatenate([np.arange(n) == 0 for n in nvec])
            case _:
                return None
        return first if not alive else whole if given is None else given

    return map_space(leaf, space, mask)
