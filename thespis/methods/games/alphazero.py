r"""AlphaZero with Gumbel search: self-play in which tree search improves the policy and the network learns from it.

The loss is :math:`-\pi^\top \log p + (z - v)^2`, where :math:`\pi` is the improved policy of the search at a position,
:math:`z` the outcome of the game for the player to move, and :math:`p, v` the network's policy and value.

Source: Silver et al., 2018; search: Danihelka et al., 2022.

Differs from common code: several epochs on the latest games instead of a large replay buffer. Games cut by the end of a
rollout take the network's value of their last position. Values are not rescaled within the search. Before a move that
was sampled for diverse openings, the value target is the search's value and not the later outcome.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.actors.distributions import Categorical
from thespis.actors.tree_search import (
    GameModel,
    GumbelSearch,
    PolicyValueNetwork,
    require_searchable_game,
    sample_actions,
)
from thespis.core.contracts import Game, Mode
from thespis.core.feeds import RolloutFeed
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Number, Report, Transition, View
from thespis.data.feeds import Rollouts
from thespis.learners.optim.minibatches import run_epochs, to_sequences
from thespis.learners.optim.optimizers import LearningRate, OptimizerFactory, build_optimizer, gradient_step
from thespis.nets.cnn import ImageEncoder
from thespis.nets.resnet import ResNet
from thespis.objectives.returns import lambda_returns
from thespis.runtime.keys import indexed_keys


class SearchTargets(eqx.Module):
    """Training targets: observations of the player to move, the search policy of each position, and its outcome."""

    observation: PyTree
    action_mask: Bool[Array, "*axes n"]
    policy: Float[Array, "*axes n"]
    outcome: Float[Array, "*axes"]


def search_targets(model: GameModel, steps: Transition, td_lambda: Number) -> SearchTargets:
    """Build training targets from a rollout ``[time, row]`` of a two-player game.

    The steps' extras hold the search's ``policy`` and ``value``, and whether a move was ``drawn`` at random and not
    chosen: what follows such a move does not count as the outcome of its position, for which the search's value is
    used. With ``td_lambda`` 1 the outcome is the result of the rest of the game, and with less a mean of that and of
    the values of the positions on the way; a game that the end of the rollout cuts is bootstrapped with the network's
    value of its last position.
    """
    (outcomes,) = steps.agent_outcomes.values()  # pyright: ignore[reportOptionalMemberAccess]
    player, next_player = (
        _vmap_steps(model.game.current_player)(view.game_state) for view in (steps.view, steps.next_view)
    )
    bootstrap = zero_sum_values(jax.vmap(model.evaluate)(steps.next_view.game_state).value, next_player)
    search_values = zero_sum_values(steps.extras["value"], player)
    continues = ~steps.done.at[-1].set(True)
    next_values = jnp.where(continues[..., None], jnp.roll(search_values, -1, axis=0), bootstrap)
    is_random = steps.extras["drawn"]
    cut = steps.done | (continues & jnp.roll(is_random, -1, axis=0))
    over_players = jax.vmap(lambda_returns, in_axes=(1, 1, None, None, None, None), out_axes=1)
    over_rows = jax.vmap(over_players, in_axes=(1, 1, 1, 1, None, None), out_axes=1)
    returns = over_rows(outcomes.reward, next_values, steps.terminated, cut, 1.0, td_lambda)
    outcome = jnp.take_along_axis(returns, player[..., None], axis=-1)[..., 0]
    observation, legal = (_vmap_steps(f)(steps.view.game_state) for f in (model.observe, model.game.action_mask))
    return SearchTargets(
        observation, legal, steps.extras["policy"], jnp.where(is_random, steps.extras["value"], outcome)
    )


def policy_value_loss(
    network: Callable[..., Any], targets: SearchTargets, vf_coef: Number
) -> tuple[Array, dict[str, Array]]:
    r"""AlphaZero loss :math:`-\pi^\top \log p + w (z - v)^2`, the mean over ``[time, row]``; and metrics.

    :math:`w` is ``vf_coef``.
    """
    logits, value = _vmap_steps(network)(targets.observation)
    log_probs = _vmap_steps(lambda *args: Categorical(*args).log_probs)(logits, targets.action_mask)
    cross_entropy = -jnp.mean(jnp.sum(targets.policy * log_probs, axis=-1))
    target_entropy = -jnp.mean(jnp.sum(targets.policy * jnp.log(targets.policy + 1e-30), axis=-1))
    value_loss = jnp.mean(jnp.square(value - targets.outcome))
    return cross_entropy + vf_coef * value_loss, {
        "policy_loss": cross_entropy,
        "policy_kl": cross_entropy - target_entropy,
        "value_loss": value_loss,
    }


def zero_sum_values(value: Float[Array, "*axes"], player: Int[Array, "*axes"]) -> Float[Array, "*axes 2"]:
    """Values for both players, given the value for ``player``."""
    return jnp.where(jnp.arange(2) == player[..., None], value[..., None], -value[..., None])


def _vmap_steps(function: Callable[..., Any]) -> Callable[..., Any]:
    return jax.vmap(jax.vmap(function))


class AlphaZeroState(eqx.Module):
    """Training state of AlphaZero: network, optimizer state and the rules of the game."""

    network: PolicyValueNetwork
    opt_state: PyTree
    game: Game


class AlphaZeroPolicy(eqx.Module):
    """Acting policy: the game model (rules and network), the search and the settings of sampled moves.

    ``num_sampling_moves`` is the mean number of a game's first moves that are sampled.
    """

    model: GameModel
    search: GumbelSearch
    temperature: Float[Array, ""]
    num_sampling_moves: Float[Array, ""]


class AlphaZero(eqx.Module):
    """AlphaZero: self-play with Gumbel tree search, for two-player zero-sum games with perfect information."""

    learning_rate: LearningRate = 1e-3
    """Learning rate."""
    optimizer: OptimizerFactory | None = None
    """Optimizer: None (Adam) or OptaxOptimizer (any of optax)."""
    vf_coef: Number = 1.0
    """Weight of the value loss."""
    td_lambda: Number = 1.0
    """Lambda of the value target, in [0, 1]: 1 is the outcome; smaller values mix in the values found by the
    searches."""
    value_scale: Number = 0.5
    """Weight of values, within -1 and 1, against the network's logits in the search."""
    num_sampling_moves: Number = 0.0
    """Mean number of first moves of a self-play game that are sampled from the improved policy (geometric)."""
    temperature: Number = 1.0
    """Softmax temperature of these sampled moves."""
    max_grad_norm: Number = 5.0
    """Global norm to which the gradient is clipped."""
    num_simulations: int = eqx.field(static=True, default=32)
    """Simulations per search in self-play."""
    num_eval_simulations: int = eqx.field(static=True, default=32)
    """Simulations per search in evaluation and play."""
    max_num_considered_actions: int = eqx.field(static=True, default=16)
    """Maximum number of actions considered at the root of a search."""
    num_epochs: int = eqx.field(static=True, default=4)
    """Epochs: passes over each rollout."""
    minibatch_size: int = eqx.field(static=True, default=256)
    """Positions per gradient step."""
    hidden_sizes: tuple[int, ...] = eqx.field(static=True, default=(128,))
    """Units of each hidden layer."""
    board_encoder: ImageEncoder | None = eqx.field(static=True, default=ResNet())
    """Encoder of the board before the hidden layers: ResNet, or None for the flat vector of cells."""
    feed: RolloutFeed = eqx.field(static=True, default=Rollouts(num_steps=64, num_envs=64))
    """Rollouts: num_steps, num_envs."""

    multi_agent: ClassVar[bool] = True
    name: ClassVar[str] = "alphazero"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Mastering Chess and Shogi by Self-Play", "Silver et al.", 2018, "arXiv:1712.01815, Science 362"),
        Citation("Policy improvement by planning with Gumbel", "Danihelka et al.", 2022, "ICLR 2022"),
    )
    details: ClassVar[tuple[str, ...]] = (
        "policy targets are the search's improved policy, not visit counts",
        "games cut by a rollout's end take the network's value of their last position",
        "Adam, global gradient norm clipped, no weight decay, no symmetries",
    )

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> AlphaZeroState:
        """Initialize the network. Raises ``UserError`` where the environment has no searchable game."""
        network = PolicyValueNetwork(require_searchable_game(spec), self.hidden_sizes, self.board_encoder, key)
        return AlphaZeroState(
            network, build_optimizer(self.optimizer, self.learning_rate, self.max_grad_norm).init(network), spec.game
        )

    def policy(self, state: AlphaZeroState, mode: Mode) -> AlphaZeroPolicy:
        """Network, rules and search; opening moves are sampled in explore mode, nothing is random in exploit mode."""
        exploring = mode is Mode.EXPLORE
        noise = jnp.asarray(0.0 if mode is Mode.EXPLOIT else 1.0)
        simulations = self.num_simulations if exploring else self.num_eval_simulations
        search = GumbelSearch(
            jnp.asarray(self.value_scale, "float32"), noise, simulations, self.max_num_considered_actions
        )
        num_sampling_moves = jnp.asarray(self.num_sampling_moves if exploring else 0.0, "float32")
        model = GameModel(state.game, state.network)
        return AlphaZeroPolicy(model, search, jnp.asarray(self.temperature, "float32"), num_sampling_moves)

    def init_memory(self, policy: AlphaZeroPolicy, n: int) -> Bool[Array, " n"]:
        """Whether each row is still in its sampled opening."""
        return jnp.ones(n, bool)

    def act(self, policy: AlphaZeroPolicy, memory: Any, view: View, key: Key[Array, ""]) -> tuple[PyTree, Any, PyTree]:
        """The searched move of the player to move; all other players take their only legal action, to wait."""
        ((group, legal),) = view.action_mask.items()
        player = jax.vmap(policy.model.game.current_player)(view.game_state)
        allowed = jnp.take_along_axis(legal, player[:, None, None], axis=1)[:, 0]
        search_key, draw_key, end_key = jax.random.split(key, 3)
        result = policy.search(policy.model, policy.model.evaluate(view.game_state), allowed, search_key)
        sampled = sample_actions(result.policy, allowed, policy.temperature, draw_key)
        uniform = jax.vmap(jax.random.uniform)(indexed_keys(end_key, player.shape[0]))
        opening = memory & (uniform < policy.num_sampling_moves / (policy.num_sampling_moves + 1.0))
        move = jnp.where(opening, sampled, result.action)
        wait_action = jnp.argmax(legal, axis=-1).astype("int32")
        action = jnp.where(jnp.arange(legal.shape[1]) == player[:, None], move[:, None], wait_action)
        return {group: action}, opening, {"policy": result.policy, "value": result.value, "drawn": opening}

    def judge(self, state: AlphaZeroState, episode: Transition) -> Critique:
        """Value of each position for player 0, whose return an episode counts."""
        value = GameModel(state.game, state.network).evaluate(episode.view.game_state).value
        first = jax.vmap(state.game.current_player)(episode.view.game_state) == 0
        return Critique(value=jnp.where(first, value, -value), discount=1.0)

    def update(self, state: AlphaZeroState, batch: Batch, key: Key[Array, ""]) -> tuple[AlphaZeroState, Report]:
        """All epochs of minibatch updates on one rollout."""
        optimizer = build_optimizer(self.optimizer, self.learning_rate, self.max_grad_norm)
        targets = search_targets(GameModel(state.game, state.network), batch.steps, self.td_lambda)

        def step(carry, minibatch):
            network, opt, metrics, norm = gradient_step(
                optimizer, lambda network: policy_value_loss(network, minibatch[0], self.vf_coef), *carry
            )
            return (network, opt), metrics | {"gradient": norm}

        data = to_sequences((targets, ()), keep_sequences=False)
        (network, opt), metrics = run_epochs(
            step, (state.network, state.opt_state), data, self.num_epochs, self.minibatch_size, key
        )
        metrics["search_error"] = jnp.mean(jnp.square(batch.steps.extras["value"] - targets.outcome))
        return AlphaZeroState(network, opt, state.game), Report(metrics)
