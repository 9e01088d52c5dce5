"""Players of the debate game that search exhaustively, two moves ahead, and learn nothing.

A position is worth what the judge would decide if the debate ended there: the difference of its logits for the two
claims. The search is exact for the last two moves. Without search, pixels are random.

Differs from Irving et al. (2018), arXiv:1805.00899: they search with 10,000 Monte Carlo rollouts per move.
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.actors.tree_search import require_searchable_game
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.feeds import RolloutFeed
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Report, Transition, View
from thespis.data.feeds import Rollouts
from thespis.papers.debate.envs import Debate, DebateState
from thespis.papers.debate.judge import PixelJudge, max_revealable_pixels, trained_judge
from thespis.runtime.keys import fold, indexed_keys


class PixelSearchState(eqx.Module):
    """The judge whose decisions are searched, and the rules of the debate. Nothing is learned."""

    judge: PixelJudge
    game: Debate


class PixelSearch(eqx.Module):
    """Debate players that search two moves ahead with the judge's logits as values, or reveal random pixels."""

    search_depth: int = eqx.field(static=True, default=2)
    """Moves that are searched: 2, 1 (a greedy player), or 0 for random pixels."""
    stream: int = eqx.field(static=True, default=0)
    """Number of the stream of random pixels: another number gives other pixels."""
    feed: RolloutFeed = eqx.field(static=True, default=Rollouts(num_steps=4, num_envs=1))
    """Rollouts; their experience is not used."""

    multi_agent: ClassVar[bool] = True
    name: ClassVar[str] = "pixel-search"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("AI safety via debate", "Irving et al.", 2018, "arXiv:1805.00899"),
    )
    details: ClassVar[tuple[str, ...]] = (
        "exhaustive search of two moves; values are differences of the judge's logits",
        "nothing is learned: updates change nothing",
    )

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> PixelSearchState:
        """The debate's judge. Raises ``UserError`` where the environment is no debate."""
        require_searchable_game(spec)
        if not isinstance(spec.game, Debate):
            raise UserError(
                f"{spec.name} is no debate, which these players need: try thespis.papers.debate.envs:DEBATE_4"
            )
        return PixelSearchState(jax.tree.map(jnp.asarray, trained_judge(spec.game.num_pixels)), spec.game)

    def policy(self, state: PixelSearchState, mode: Mode) -> PixelSearchState:
        """The same in all modes."""
        return state

    def init_memory(self, policy: PixelSearchState, n: int) -> tuple[()]:
        """No memory: a position shows everything."""
        return ()

    def act(self, policy: PixelSearchState, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """The pixel of the player to move; the other player takes its only legal action, to wait."""
        ((group, legal),) = view.action_mask.items()  # pyright: ignore[reportOptionalMemberAccess]
        player = jax.vmap(policy.game.current_player)(view.game_state)
        keys = indexed_keys(fold(key, "pixels", self.stream), player.shape[0])
        pixel = jax.lax.map(lambda row: self._choose(policy, *row), (view.game_state, keys))
        wait_action = jnp.argmax(legal, axis=-1).astype("int32")
        action = jnp.where(jnp.arange(legal.shape[1]) == player[:, None], pixel[:, None], wait_action)
        return {group: action}, memory, ()

    def judge(self, state: PixelSearchState, episode: Transition) -> Critique:
        """No critique: there is no critic."""
        return Critique()

    def update(self, state: PixelSearchState, batch: Batch, key: Key[Array, ""]) -> tuple[PixelSearchState, Report]:
        """Return the state unchanged: nothing is learned."""
        return state, Report({})

    def _choose(self, policy: PixelSearchState, position: DebateState, key: Key[Array, ""]) -> Int[Array, ""]:
        legal = policy.game.action_mask(position)
        if self.search_depth == 0:
            return _argmax(jax.random.uniform(key, legal.shape), legal)
        pixels = jax.lax.top_k(legal.astype("float32"), max_revealable_pixels())[1]
        free = legal[pixels]
        num_revealed = jnp.sum(position.revealed, dtype="int32")
        sign, next_sign = (_sign(policy.game.speaker_order.next_player(num_revealed + i)) for i in range(2))
        hidden, effects = _hidden_inputs(policy.judge, position)
        weights = policy.judge.output_weights[position.claims[0]] - policy.judge.output_weights[position.claims[1]]

        def after_one_move() -> Float[Array, " candidate"]:
            return sign * (weights @ jax.nn.relu(hidden[:, None] + effects[:, pixels]))

        def after_two_moves() -> Float[Array, " candidate"]:
            def best_reply(first: Int[Array, ""]) -> Float[Array, ""]:
                margins = weights @ jax.nn.relu((hidden + effects[:, first])[:, None] + effects[:, pixels])
                return jnp.max(jnp.where(free & (pixels != first), next_sign * margins, -jnp.inf))

            return sign * next_sign * jax.vmap(best_reply)(pixels)

        is_last = num_revealed + 1 >= policy.game.num_pixels
        values = jax.lax.cond(is_last | (self.search_depth == 1), after_one_move, after_two_moves)
        return pixels[_argmax(values, free)]


def _hidden_inputs(
    judge: PixelJudge, position: DebateState
) -> tuple[Float[Array, " hidden"], Float[Array, "hidden pixel"]]:
    """Inputs of the judge's hidden units from the revealed pixels, and what each pixel adds once it is revealed."""
    of_values, of_positions = jnp.split(judge.hidden_weights, 2, axis=1)
    effects = of_values * position.image + of_positions
    return judge.hidden_bias + effects @ position.revealed.astype("float32"), effects


def _sign(player: Int[Array, ""]) -> Float[Array, ""]:
    """1 for player 0, whose claim has the positive logit, and -1 for the other."""
    return jnp.where(player == 0, 1.0, -1.0)


def _argmax(values: Float[Array, " n"], legal: Bool[Array, " n"]) -> Int[Array, ""]:
    return jnp.argmax(jnp.where(legal, values, -jnp.inf)).astype("int32")
