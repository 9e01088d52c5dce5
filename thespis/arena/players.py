"""Players of multi-agent environments: the player protocol, trained players, uniformly random players."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
from jaxtyping import Array, Key, PyTree

from thespis.core.contracts import Game, Method, Mode
from thespis.core.records import EnvSpec, View
from thespis.core.spaces import AgentGroup, Space, unscale_action
from thespis.envs.games.game_tree import build_game_tree, uniform_policy
from thespis.evaluation.baseline import RandomPolicy
from thespis.evaluation.exploitability import ExploitabilityResult, evaluate_method, evaluate_policy_table


@runtime_checkable
class Player(Protocol):
    """Protocol of a player: acts for all seats at once; the caller uses the actions of the player's own seats.

    Either a pytree of arrays, or an object without arrays.
    """

    def init_memory(self, n: int) -> PyTree:
        """Memory at the start of ``n`` games, leading axis ``n``; ``()`` if there is none."""
        ...

    def act(self, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any]:
        """Actions ``[n, agent, ...]`` by group, in the environment's units, and the next memory."""
        ...


@runtime_checkable
class HasExploitability(Protocol):
    """Protocol of a player whose exploitability can be computed in small games."""

    def evaluate_exploitability(self, game: Game) -> ExploitabilityResult:
        """Exact exploitability in ``game``. Raises ``UserError`` where this cannot be computed."""
        ...


class TrainedPlayer(eqx.Module):
    """Player with the policy of a trained multi-agent method."""

    method: Method
    state: PyTree
    mode: Mode = eqx.field(static=True)
    action_space: Space = eqx.field(static=True)

    def init_memory(self, n: int) -> PyTree:
        """The policy's initial memory."""
        return self.method.init_memory(self.method.policy(self.state, self.mode), n)

    def act(self, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any]:
        """Actions that the trained policy takes."""
        action, memory, _ = self.method.act(self.method.policy(self.state, self.mode), memory, view, key)
        return unscale_action(self.action_space, action), memory

    def evaluate_exploitability(self, game: Game) -> ExploitabilityResult:
        """Exploitability from the method's action probabilities."""
        return evaluate_method(self.method, jax.tree.map(lambda x: x[None], self.state), game, self.mode)[0]


class UniformRandomPlayer(eqx.Module):
    """Player that samples uniformly among legal actions."""

    action_space: Space = eqx.field(static=True)
    groups: tuple[AgentGroup, ...] = eqx.field(static=True)

    @classmethod
    def from_spec(cls, spec: EnvSpec) -> UniformRandomPlayer:
        """The player for an environment."""
        return cls(spec.action_space, spec.groups)

    def evaluate_exploitability(self, game: Game) -> ExploitabilityResult:
        """Exploitability of the uniform policy."""
        tree = build_game_tree(game)
        return evaluate_policy_table(tree, uniform_policy(tree))

    def init_memory(self, n: int) -> PyTree:
        """An empty memory: the policy is memoryless."""
        return ()

    def act(self, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any]:
        """Actions drawn uniformly from the legal ones."""
        action, memory, _ = RandomPolicy(self.action_space, self.groups).act((), memory, view, key)
        return unscale_action(self.action_space, action), memory
