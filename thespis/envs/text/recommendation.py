"""Recommendation task: name one of a few items to a user, whose taste is told, shown by earlier choices, or not shown.

``+c -h +b -e >`` is answered by ``b <end>``, which ends the episode: the user has preferred ``c`` to ``h`` and ``b`` to
``e``. Items and users are points on a circle, and the reward is the utility of the item to the user, the cosine of
the angle between them. Users differ around a common taste (``user_spread``), so one item is good for most of them and
bad for some.

It is the smallest task of personalization. How good a recommendation can be with what the prompt shows is known: the
user's posterior is an integral over one angle.
"""

from __future__ import annotations

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from thespis.core.spaces import word_vocabulary
from thespis.envs.text.task import RESPONSE_CUE, TaskSpec, TaskStep, pack_tokens
from thespis.runtime.keys import fold

NO_ITEM_REWARD = -2.0
"""Reward of a response that names no item: less than that of any item."""
_NUM_ANGLES = 720


class RecommendationState(eqx.Module):
    """State of one episode: the user's angle, and the items ``[choice, (preferred, other)]`` of earlier choices."""

    angle: Float[Array, "*episodes"]
    choices: Int[Array, "*episodes choice 2"]


class Recommendation(eqx.Module):
    """Recommendation task: one of ``num_items`` items (2 to 26) for a user who is new in each episode.

    ``user_spread``: standard deviation of the users' angles, in radians, above 0. ``num_user_types``: with 0 every
    angle is drawn anew; otherwise users have one of that many, at equal quantiles of the same distribution.
    ``shows``: what the prompt says of the user: earlier choices, the user's best item, or nothing. ``num_choices``: how
    many choices it shows, each of two random items. ``rationality``: how much the better item is preferred in them, by
    the model of Bradley and Terry, per unit of utility. ``demonstrator_noise``: the share of the demonstrator's items
    that are random; the others are the user's best.
    """

    num_items: int = eqx.field(static=True, default=12)
    user_spread: float = eqx.field(static=True, default=1.3)
    num_user_types: int = eqx.field(static=True, default=0)
    shows: Literal["choices", "user", "nothing"] = eqx.field(static=True, default="choices")
    num_choices: int = eqx.field(static=True, default=4)
    rationality: float = eqx.field(static=True, default=4.0)
    demonstrator_noise: float = 1.0

    def __check_init__(self):
        """Raise ``ValueError`` for settings out of range."""
        if not 2 <= self.num_items <= 26:
            raise ValueError(f"num_items={self.num_items}: 2 to 26")
        if self.user_spread <= 0:
            raise ValueError(f"user_spread={self.user_spread}: above 0")
        if self.num_user_types < 0 or self.num_choices < 1:
            raise ValueError("num_user_types: 0 or more; num_choices: 1 or more")
        if self.shows not in ("choices", "user", "nothing"):
            raise ValueError(f"shows={self.shows}: choices, user or nothing")

    @property
    def items(self) -> tuple[str, ...]:
        """The items that can be named."""
        return tuple("abcdefghijklmnopqrstuvwxyz"[: self.num_items])

    @property
    def item_angles(self) -> Float[np.ndarray, " item"]:
        """Angles of the items, equally far from each other; the first is the common taste."""
        return (2 * np.pi * np.arange(self.num_items) / self.num_items).astype("float32")

    @property
    def task_spec(self) -> TaskSpec:
        """The items, as responses and as those that were preferred or not, and the response cue."""
        marked = [sign + item for sign in "+-" for item in self.items]
        return TaskSpec(
            "text:recommendation",
            word_vocabulary((RESPONSE_CUE, *self.items, *marked)),
            1,
            2,
            max_opening_tokens=1 + {"choices": 2 * self.num_choices, "user": 1, "nothing": 0}[self.shows],
            max_message_tokens=1,
            choices=self.items,
        )

    def utilities(self, angle: Float[Array, "*users"]) -> Float[Array, "*users item"]:
        """The utility of each item to users with these angles, from -1 to 1."""
        return jnp.cos(angle[..., None] - self.item_angles)

    def expected_utilities(self, choices: Int[Array, "choice 2"]) -> Float[Array, " item"]:
        """The utility of each item that is expected after these choices: the mean over the user's posterior."""
        # A spread of several turns wraps around: the normal distribution is summed at the same points of the circle.
        num_turns = int(np.ceil(4 * self.user_spread / np.pi))
        grid = np.pi * (2 * np.arange(_NUM_ANGLES) + 1) / _NUM_ANGLES - np.pi
        turns = grid[:, None] + 2 * np.pi * np.arange(-num_turns, num_turns + 1)
        prior = np.exp(-0.5 * (turns / self.user_spread) ** 2).sum(axis=1)
        utilities = self.utilities(jnp.asarray(grid, "float32"))
        margins = utilities[:, choices[:, 0]] - utilities[:, choices[:, 1]]
        logits = jnp.log(jnp.asarray(prior)) + jax.nn.log_sigmoid(self.rationality * margins).sum(axis=-1)
        return jax.nn.softmax(logits) @ utilities

    def init(self, key: Key[Array, ""]) -> tuple[RecommendationState, Int[Array, " opening"]]:
        """A user, who makes a few choices, and the prompt."""
        spec = self.task_spec
        angle = self.user_spread * self._draw_quantile(fold(key, "user"))
        pairs = jax.vmap(lambda key: jax.random.permutation(key, self.num_items)[:2])(
            jax.random.split(fold(key, "pairs"), self.num_choices)
        )
        utilities = self.utilities(angle)[pairs]
        prefers_first = jax.nn.sigmoid(self.rationality * (utilities[:, 0] - utilities[:, 1]))
        is_first = jax.random.uniform(fold(key, "choices"), (self.num_choices,)) < prefers_first
        choices = jnp.where(is_first[:, None], pairs, pairs[:, ::-1])
        if self.shows == "choices":
            shown = jnp.array([spec.encode_word("+a"), spec.encode_word("-a")]) + choices
        elif self.shows == "user":
            shown = spec.encode_word("+a") + jnp.argmax(self.utilities(angle))
        else:
            shown = jnp.zeros(0, "int32")
        opening = pack_tokens(spec.max_opening_tokens, shown.ravel(), spec.encode(RESPONSE_CUE))
        return RecommendationState(angle, choices), opening

    def _draw_quantile(self, key: Key[Array, ""]) -> Float[Array, ""]:
        """A number from the normal distribution, or one of its equally spaced quantiles."""
        if self.num_user_types == 0:
            return jax.random.normal(key)
        user = jax.random.randint(key, (), 0, self.num_user_types)
        return jax.scipy.special.ndtri((user + 0.5) / self.num_user_types)

    def step(self, state: RecommendationState, response: Int[Array, " response"], key: Key[Array, ""]):
        """The utility of the item to the user; the episode ends."""
        item = response[0] - self.task_spec.encode_word(self.items[0])
        is_item = (item >= 0) & (item < self.num_items) & (response[1] == self.task_spec.vocabulary.eos_tokens[0])
        reward = jnp.where(is_item, self.utilities(state.angle)[item], NO_ITEM_REWARD)
        return state, TaskStep(jnp.full(1, -1), reward, jnp.ones((), bool))

    def demonstrator_response(self, state: RecommendationState, key: Key[Array, ""]) -> Int[Array, " response"]:
        """The user's best item, or any item."""
        is_random = jax.random.uniform(fold(key, "wander")) < self.demonstrator_noise
        any_item = jax.random.randint(fold(key, "item"), (), 0, self.num_items)
        item = jnp.where(is_random, any_item, jnp.argmax(self.utilities(state.angle)))
        eos_token = jnp.full((), self.task_spec.vocabulary.eos_tokens[0], item.dtype)
        return jnp.stack([self.task_spec.encode_word(self.items[0]) + item, eos_token])
