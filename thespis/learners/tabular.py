"""Tables over all information states of a small game, whose regrets fall as the game is walked through again and again.

No experience is used: an update walks through every node. What is played is the average policy, found by what a player
sees; of what no table holds, every legal choice is as likely. A concrete method adds its fields and how it sums;
nothing here is overridden.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.actors.distributions import Categorical
from thespis.core.contracts import Game, Mode
from thespis.core.errors import UserError
from thespis.core.game_trees import GameTree, flat, game_tree
from thespis.core.game_walks import exploitability, outcome, regrets
from thespis.core.keys import per_index
from thespis.core.records import Critique, EnvSpec, Report, Transition, View
from thespis.objectives.regrets import regret_matching

Table = Float[Array, "information action"]


class Tables(eqx.Module):
    """All that is learnt: summed regrets, and the summed policies whose mean is played."""

    regrets: Table
    policies: Table
    iterations: Int[Array, ""]
    game: Game = eqx.field(static=True)
    group: str = eqx.field(static=True)


class TablePolicy(eqx.Module):
    """Probabilities by information state."""

    table: Table
    game: Game = eqx.field(static=True)
    group: str = eqx.field(static=True)
    mode: Mode = eqx.field(static=True)


class Simultaneous(eqx.Module):
    """All players learn from the same policies (Zinkevich et al., 2007)."""

    def turns(self, tree: GameTree) -> list[Any]:
        """Which information states learn, turn by turn."""
        return [tree.owner >= 0]


class Alternating(eqx.Module):
    """Players learn one after the other, each against what those before it have just learnt."""

    def turns(self, tree: GameTree) -> list[Any]:
        """Which information states learn, turn by turn."""
        return [tree.owner == player for player in range(tree.payoff.shape[1])]


Order = Simultaneous | Alternating


class Tabular(eqx.Module):
    """Counterfactual regret minimisation over tables."""

    iterations: eqx.AbstractVar[int]

    for_many: ClassVar[bool] = True

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> Tables:
        """Tables of zeros. Raises ``UserError`` unless the world is all seats of a game that can be written out."""
        if spec.game is None or [group.count for group in spec.groups] != [spec.game.rules.players]:
            raise UserError(f"{spec.name}: tables are for all seats of a game, such as --env pgx:kuhn_poker")
        nothing = jnp.zeros(game_tree(spec.game).legal.shape)
        return Tables(nothing, nothing, jnp.zeros((), "int32"), spec.game, spec.groups[0].name)

    def policy(self, state: Tables, mode: Mode) -> TablePolicy:
        """The average policy."""
        return TablePolicy(average(state), state.game, state.group, mode)

    def begin(self, policy: TablePolicy, n: int) -> tuple[()]:
        """No memory: what is seen tells all that is known."""
        return ()

    def probabilities(self, policy: TablePolicy, memory: Any, view: View) -> dict[str, Float[Array, "row seat action"]]:
        """Of every choice; all on the likeliest when it exploits."""
        seen, legal = view.observation[policy.group], view.legal[policy.group]  # pyright: ignore[reportOptionalSubscript]
        seats = jnp.arange(legal.shape[1])
        one = jax.vmap(lambda seat, seen, legal: _found(policy, seat, seen, legal))
        return {policy.group: jax.vmap(one, in_axes=(None, 0, 0))(seats, seen, legal)}

    def act(self, policy: TablePolicy, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """A draw for every seat."""
        likely = self.probabilities(policy, memory, view)[policy.group]

        def one(likely: Array, key: Key[Array, ""]) -> Array:
            draw = jax.vmap(lambda p, key: Categorical(jnp.log(p), p > 0).sample(key))
            return draw(likely, per_index(key, len(likely)))

        return {policy.group: jax.vmap(one)(likely, per_index(key, len(likely)))}, memory, ()

    def judge(self, state: Tables, episode: Transition) -> Critique:
        """No critic, no opinion."""
        return Critique()

    def walk(self, state: Tables, order: Order, keep: Callable[[Table], Table], weight: Callable[[Array], Any]):
        """``iterations`` times: sum regrets, of which ``keep`` says what is kept, and policies with a ``weight``.

        ``weight`` is given the number of the iteration, from 1 on. Reported is what the average policy is worth.
        """
        tree = game_tree(state.game)
        turns: list[Bool[Any, " information"]] = order.turns(tree)

        def iterate(_: Any, state: Tables) -> Tables:
            table, total, number = state.regrets, state.policies, state.iterations + 1
            for learning in turns:
                policy = regret_matching(table, jnp.asarray(tree.legal))
                regret, arriving = regrets(tree, policy)
                mine = learning[:, None]
                table = jnp.where(mine, keep(table + regret), table)
                total = jnp.where(mine, total + weight(number) * arriving[:, None] * policy, total)
            return Tables(table, total, number, state.game, state.group)

        state = jax.lax.fori_loop(0, self.iterations, iterate, state)
        mean = average(state)
        told = {"exploitability": exploitability(tree, mean), "value": outcome(tree, mean)[0]}
        return state, Report(told)


def average(state: Tables) -> Table:
    """The mean policy so far, every policy weighted by how likely it came to an information state."""
    return regret_matching(state.policies, jnp.asarray(game_tree(state.game).legal))


def _found(
    policy: TablePolicy, seat: Int[Array, ""], seen: PyTree, legal: Bool[Array, " action"]
) -> Float[Array, " action"]:
    """The row of what a seat sees. A view that the game does not lead to has none."""
    alike = jnp.all(jnp.asarray(game_tree(policy.game).seen) == flat(seat, seen), axis=1)
    row = jnp.where(jnp.any(alike), policy.table[jnp.argmax(alike)], 0.0)
    likely = regret_matching(row, legal)
    return jax.nn.one_hot(jnp.argmax(likely), len(likely)) if policy.mode is Mode.EXPLOIT else likely
