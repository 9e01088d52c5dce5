"""What games against oneself teach: at every position the policy of a search, and how it ended for the one to move."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from thespis.actors.distributions import Categorical
from thespis.actors.positions import GameModel
from thespis.core.records import Transition
from thespis.objectives.returns import Number, lambda_returns


class Lessons(eqx.Module):
    """Positions as the player to move saw them, the policy that a search made of each, and its outcome."""

    observation: PyTree
    legal: Bool[Array, "*axes n"]
    policy: Float[Array, "*axes n"]
    outcome: Float[Array, "*axes"]


def lessons_of(model: GameModel, steps: Transition, trace: Number) -> Lessons:
    """What a rollout ``[time, row]`` of a game of two teaches.

    The steps' extras hold the ``policy`` and the ``value`` that the search found. With ``trace`` 1 the outcome is what
    the rest of the game brought, and with less a mean of that and of the values of the positions on the way; a game
    that the rollout's end cuts is worth the net's value of the position it was left in.
    """
    (came,) = steps.each.values()  # pyright: ignore[reportOptionalMemberAccess]
    mover, then = (_all(model.game.player)(view.position) for view in (steps.view, steps.next_view))
    left = by_seat(jax.vmap(model.look)(steps.next_view.position).value, then)
    found = by_seat(steps.extras["value"], mover)
    goes_on = ~steps.ended.at[-1].set(True)
    following = jnp.where(goes_on[..., None], jnp.roll(found, -1, axis=0), left)
    over_seats = jax.vmap(lambda_returns, in_axes=(1, 1, None, None, None, None), out_axes=1)
    over_rows = jax.vmap(over_seats, in_axes=(1, 1, 1, 1, None, None), out_axes=1)
    returns = over_rows(came.reward, following, steps.terminated, steps.ended, 1.0, trace)
    outcome = jnp.take_along_axis(returns, mover[..., None], axis=-1)[..., 0]
    seen, legal = (_all(f)(steps.view.position) for f in (model.seen, model.game.legal))
    return Lessons(seen, legal, steps.extras["policy"], outcome)


def lesson_loss(opinion: Callable[..., Any], data: Lessons, value_weight: Number) -> tuple[Array, dict[str, Array]]:
    r""":math:`-\pi^\top \log p + w (z - v)^2`, the mean over ``[time, row]``; and metrics."""
    logits, value = _all(opinion)(data.observation)
    log_probs = _all(lambda *given: Categorical(*given).log_probs)(logits, data.legal)
    cross = -jnp.mean(jnp.sum(data.policy * log_probs, axis=-1))
    own = -jnp.mean(jnp.sum(data.policy * jnp.log(data.policy + 1e-30), axis=-1))
    value_loss = jnp.mean(jnp.square(value - data.outcome))
    return cross + value_weight * value_loss, {"policy_loss": cross, "policy_kl": cross - own, "value_loss": value_loss}


def by_seat(value: Float[Array, "*axes"], player: Int[Array, "*axes"]) -> Float[Array, "*axes 2"]:
    """A value for ``player`` as what it is worth to each of the two."""
    return jnp.where(jnp.arange(2) == player[..., None], value[..., None], -value[..., None])


def _all(function: Callable[..., Any]) -> Callable[..., Any]:
    return jax.vmap(jax.vmap(function))
