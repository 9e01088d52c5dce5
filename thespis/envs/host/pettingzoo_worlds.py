"""One world of PettingZoo: all agents at once (:class:`Together`), or one after another (:class:`InTurn`).

Every episode is begun with a seed that we draw, so a world does the same again whatever it does without one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from thespis.core.errors import UserError
from thespis.core.records import EnvSpec
from thespis.core.spaces import dict_space
from thespis.envs.alike import alike, groups_of
from thespis.envs.host import snapshot, values
from thespis.envs.host.many import Told
from thespis.envs.spaces import from_gymnasium

Given = Any
"""An environment with PettingZoo's interface."""
MASK = "action_mask"


class Agents:
    """What both kinds share: who there may be, how their values are read, seeds and states."""

    def __init__(self, env: Given, name: str, infos: Callable[[], dict[Any, dict]]):
        self.env = env
        try:
            self.agents = list(env.possible_agents)
        except AttributeError:
            raise UserError(f"{name} does not say which agents there may be: set possible_agents") from None
        spaces = [(_inner(env.observation_space(a)), env.action_space(a)) for a in self.agents]
        self._masked = [_has_mask(env.observation_space(a)) for a in self.agents]
        self._read = [values.observation_reader(seen, what=f"{a}: observation") for a, (seen, _) in self._zip(spaces)]
        self._write = [values.action_writer(chosen) for _, chosen in spaces]
        kinds = [(from_gymnasium(seen), from_gymnasium(chosen)) for seen, chosen in spaces]
        self._choices = [chosen for _, chosen in kinds]
        self.members = alike([str(agent) for agent in self.agents], kinds)
        self._random = np.random.default_rng(0)
        self.reset(0)
        legal = any(self._masked) or any(MASK in info for info in infos().values())
        first = {group: kinds[places[0]] for group, places in self.members}
        self.spec = EnvSpec(
            name,
            dict_space(**{group: seen for group, (seen, _) in first.items()}),
            dict_space(**{group: chosen for group, (_, chosen) in first.items()}),
            legal,
            groups=groups_of(self.members),
        )

    def reset(self, seed: int | None) -> Any:
        """Begin an episode."""
        if seed is not None:
            self._random = np.random.default_rng(seed)
        return self.env.reset(seed=int(self._random.integers(2**31)))

    def action(self, i: int, action: Any) -> Any:
        """What agent ``i`` sends."""
        return self._write[i](action)

    def told(
        self, seen: dict[Any, Any], infos: dict[Any, dict], deciding: list[Any], gone: list[Any],
        rewards: dict[Any, Any], terminated: bool = False, truncated: bool = False,
    ) -> Told:  # fmt: skip
        """What is there, by agent. Who decides and has no mask may do everything."""
        observation: list[Any] = [None] * len(self.agents)
        legal: list[Any] = [None] * len(self.agents)
        for i, agent in enumerate(self.agents):
            if agent in gone or agent not in seen:
                continue
            value = seen[agent]
            mask = value[MASK] if self._masked[i] else infos.get(agent, {}).get(MASK)
            observation[i] = self._read[i](_unmasked(value) if self._masked[i] else value)
            if mask is not None and agent in deciding:
                legal[i] = values.read_legal(self._choices[i], mask, terminated or truncated)
        alive, left = (np.array([agent in some for agent in self.agents]) for some in (deciding, gone))
        brought = np.array([float(rewards.get(agent, 0.0)) for agent in self.agents], "float32")
        return Told(observation, legal, alive, left, brought, float(brought.mean()), terminated, truncated)

    def save(self) -> dict[str, np.ndarray] | None:
        """What the user's own world says of itself, and our seeds."""
        world = self.env.unwrapped
        if not isinstance(world, snapshot.Saves):
            return None
        own = {f"own.{name}": np.asarray(value) for name, value in world.save_state().items()}
        return own | {"seeds": snapshot.save_random(self._random)}

    def load(self, saved: dict[str, np.ndarray]) -> None:
        """Back to where :meth:`save` was called."""
        self.reset(0)
        snapshot.load_random(self._random, saved["seeds"])
        self.env.unwrapped.load_state({n[4:]: value for n, value in saved.items() if n.startswith("own.")})

    def close(self) -> None:
        """Release windows."""
        self.env.close()

    def _zip(self, spaces: list[Any]) -> Any:
        return zip(self.agents, spaces, strict=True)


class Together:
    """A ``ParallelEnv``: all agents that are there act at once; agents may go and come."""

    def __init__(self, env: Given, name: str):
        self._infos: dict[Any, dict] = {}
        self._env = env
        self._of = Agents(env, name, lambda: env.reset(seed=0)[1])
        self.spec, self.members = self._of.spec, self._of.members
        self.save, self.load, self.close = self._of.save, self._of.load, self._of.close

    def begin(self, seed: int | None) -> Told:
        """A fresh episode."""
        seen, infos = self._of.reset(seed)
        return self._of.told(seen, infos, list(self._env.agents), [], {})

    def step(self, actions: list[Any]) -> Told:
        """All agents that are there act."""
        agents, env = self._of.agents, self._env
        here = list(env.agents)
        sent = {agent: self._of.action(i, actions[i]) for i, agent in enumerate(agents) if agent in here}
        seen, rewards, terminations, truncations, infos = env.step(sent)
        over, died, cut = not env.agents, *([a for a in here if flags.get(a)] for flags in (terminations, truncations))
        truncated = over and any(agent not in died for agent in cut)
        gone = [agent for agent in here if agent in died or (agent in cut and not over)]
        deciding = [agent for agent in (here if over else env.agents) if agent not in gone]
        return self._of.told(seen, infos, deciding, gone, rewards, over and not truncated, truncated)


class InTurn:
    """An ``AECEnv``: one agent acts at a time, the others wait."""

    def __init__(self, env: Given, name: str):
        self._env = env
        self._of = Agents(env, name, lambda: env.infos)
        self.spec, self.members = self._of.spec, self._of.members
        self.save, self.load, self.close = self._of.save, self._of.load, self._of.close

    def begin(self, seed: int | None) -> Told:
        """A fresh episode."""
        self._of.reset(seed)
        return self._of.told(self._seen(), self._env.infos, [self._env.agent_selection], [], {})

    def step(self, actions: list[Any]) -> Told:
        """The move of the one whose turn it is; agents that are out of the game leave at once."""
        env, of = self._env, self._of
        i = of.agents.index(env.agent_selection)
        before = list(env.agents)
        env.step(of.action(i, actions[i]))
        rewards = dict(env.rewards)
        out = [agent for agent in env.agents if env.terminations[agent] or env.truncations[agent]]
        cut = [agent for agent in out if not env.terminations[agent]]
        seen, infos, over = self._seen(), dict(env.infos), len(out) == len(env.agents)
        gone = [agent for agent in before if agent in out and not (over and agent in cut)]
        if over:
            return of.told(seen, infos, cut, gone, rewards, not cut, bool(cut))
        while env.agents and (env.terminations[env.agent_selection] or env.truncations[env.agent_selection]):
            env.step(None)
        return of.told(self._seen(), env.infos, [env.agent_selection], gone, rewards)

    def _seen(self) -> dict[Any, Any]:
        return {agent: self._env.observe(agent) for agent in self._env.agents}


def _has_mask(space: Any) -> bool:
    import gymnasium.spaces as g

    return isinstance(space, g.Dict) and MASK in space.spaces


def _inner(space: Any) -> Any:
    """The space without the mask: what is beside it, if that is one thing."""
    import gymnasium.spaces as g

    if not _has_mask(space):
        return space
    rest = {name: part for name, part in space.spaces.items() if name != MASK}
    return next(iter(rest.values())) if len(rest) == 1 else g.Dict(rest)


def _unmasked(value: dict[str, Any]) -> Any:
    rest = {name: part for name, part in value.items() if name != MASK}
    return next(iter(rest.values())) if len(rest) == 1 else rest
