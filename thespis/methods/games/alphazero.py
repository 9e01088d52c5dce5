r"""AlphaZero with Gumbel search: a net proposes moves, search improves on them, the net learns from that and the end.

The loss is :math:`-\pi^\top \log p + (z - v)^2` with :math:`\pi` the improved policy of the search at a position,
:math:`z` how the game then ended for the player to move, and :math:`p, v` the net's policy and value.

Source: Silver et al., 2018; the search: Danihelka et al., 2022.
Differs from common code: several epochs on the latest games in place of a large replay. Games that the end of a rollout
cuts are worth what the net says of the position they were left in. Values are not rescaled within the search. Before a
move that was drawn, so that games begin differently, the search's value is learnt and not what followed.
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PyTree

from thespis.actors.positions import GameModel, Opinion, searchable
from thespis.actors.search import GumbelSearch, sampled
from thespis.core.contracts import Game, Mode
from thespis.core.feeds import Rollouts
from thespis.core.keys import per_index
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Report, Transition, View
from thespis.learners.gradient import Adam, Number, gradient_step
from thespis.learners.minibatches import columns, epochs
from thespis.learners.self_play import lesson_loss, lessons_of
from thespis.nets.residual import Flat, Residual


class AlphaZeroState(eqx.Module):
    """All that is learnt, and the rules."""

    opinion: Opinion
    opt: PyTree
    game: Game


class Player(eqx.Module):
    """How it plays: the rules, a net, a search, and how many of a game's first moves are drawn, on average."""

    model: GameModel
    search: GumbelSearch
    temperature: Float[Array, ""]
    opening: Float[Array, ""]


class AlphaZero(eqx.Module):
    """Self-play with search, for games of two in which all is seen and one wins what the other loses."""

    learning_rate: Number = 1e-3
    """Step size."""
    value_weight: Number = 1.0
    """Weight of the value's loss."""
    trace: Number = 1.0
    """Lambda of the value's target, in [0, 1]: 1 is the outcome, less mixes in the values that searches found."""
    value_scale: Number = 0.5
    """How much values, within -1 and 1, count against the net's logits in the search."""
    opening: Number = 0.0
    """How many first moves of a game of self-play are drawn from the improved policy, on average (geometric)."""
    temperature: Number = 1.0
    """Temperature of these draws."""
    max_gradient_norm: Number = 5.0
    """Global norm to which the gradient is clipped."""
    simulations: int = eqx.field(static=True, default=32)
    """Simulations of a search in self-play."""
    playing: int = eqx.field(static=True, default=32)
    """Simulations of a search when what was learnt is played."""
    considered: int = eqx.field(static=True, default=16)
    """Moves that a search considers at its root."""
    epochs: int = eqx.field(static=True, default=4)
    """Passes over each rollout."""
    minibatch: int = eqx.field(static=True, default=256)
    """Positions per gradient step."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(128,))
    """Units of each hidden layer."""
    board: Residual | Flat = eqx.field(static=True, default=Residual())
    """What boards pass through before the hidden layers: Residual or Flat."""
    feed: Rollouts = eqx.field(static=True, default=Rollouts(length=64, envs=64))
    """Rollouts: length, envs."""

    for_many: ClassVar[bool] = True
    name: ClassVar[str] = "alphazero"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Mastering Chess and Shogi by Self-Play", "Silver et al.", 2018, "arXiv:1712.01815, Science 362"),
        Citation("Policy improvement by planning with Gumbel", "Danihelka et al.", 2022, "ICLR 2022"),
    )
    details: ClassVar[tuple[str, ...]] = (
        "policy targets are the search's improved policy, not visit counts",
        "games cut by a rollout's end are worth the net's value of their last position",
        "Adam, global gradient norm clipped, no weight decay, no symmetries",
    )

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> AlphaZeroState:
        """A fresh net. Raises ``UserError`` where there is no game that can be searched like this."""
        opinion = Opinion(searchable(spec), self.hidden, self.board, key)
        return AlphaZeroState(opinion, Adam(self.learning_rate, self.max_gradient_norm).init(opinion), spec.game)

    def policy(self, state: AlphaZeroState, mode: Mode) -> Player:
        """Net, rules and search; openings are drawn while it explores, and nothing is when it exploits."""
        learning = mode is Mode.EXPLORE
        noise = jnp.asarray(0.0 if mode is Mode.EXPLOIT else 1.0)
        simulations = self.simulations if learning else self.playing
        search = GumbelSearch(jnp.asarray(self.value_scale, "float32"), noise, simulations, self.considered)
        opening = jnp.asarray(self.opening if learning else 0.0, "float32")
        model = GameModel(state.game, state.opinion)
        return Player(model, search, jnp.asarray(self.temperature, "float32"), opening)

    def begin(self, policy: Player, n: int) -> Bool[Array, " n"]:
        """Whether the opening may go on."""
        return jnp.ones(n, bool)

    def act(self, policy: Player, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """The move of the player whose turn it is, and of the others all they may do: wait."""
        ((group, legal),) = view.legal.items()
        mover = jax.vmap(policy.model.game.player)(view.position)
        allowed = jnp.take_along_axis(legal, mover[:, None, None], axis=1)[:, 0]
        search_key, draw_key, end_key = jax.random.split(key, 3)
        found = policy.search(policy.model, policy.model.look(view.position), allowed, search_key)
        drawn = sampled(found.policy, allowed, policy.temperature, draw_key)
        chance = jax.vmap(jax.random.uniform)(per_index(end_key, mover.shape[0]))
        opening = memory & (chance < policy.opening / (policy.opening + 1.0))
        chosen = jnp.where(opening, drawn, found.action)
        waiting = jnp.argmax(legal, axis=-1).astype("int32")
        action = jnp.where(jnp.arange(legal.shape[1]) == mover[:, None], chosen[:, None], waiting)
        return {group: action}, opening, {"policy": found.policy, "value": found.value, "drawn": opening}

    def judge(self, state: AlphaZeroState, episode: Transition) -> Critique:
        """What the net expects for the first seat, which is what episodes count for."""
        value = GameModel(state.game, state.opinion).look(episode.view.position).value
        first = jax.vmap(state.game.player)(episode.view.position) == 0
        return Critique(value=jnp.where(first, value, -value), discount=1.0)

    def update(self, state: AlphaZeroState, batch: Batch, key: Key[Array, ""]) -> tuple[AlphaZeroState, Report]:
        """All epochs on one rollout."""
        adam = Adam(self.learning_rate, self.max_gradient_norm)
        lessons = lessons_of(GameModel(state.game, state.opinion), batch.steps, self.trace)

        def step(carry, minibatch):
            opinion, opt, metrics, norm = gradient_step(
                adam, lambda opinion: lesson_loss(opinion, minibatch[0], self.value_weight), *carry
            )
            return (opinion, opt), metrics | {"gradient": norm}

        data = columns((lessons, ()), joined=False)
        (opinion, opt), metrics = epochs(step, (state.opinion, state.opt), data, self.epochs, self.minibatch, key)
        metrics["search_error"] = jnp.mean(jnp.square(batch.steps.extras["value"] - lessons.outcome))
        return AlphaZeroState(opinion, opt, state.game), Report(metrics)
