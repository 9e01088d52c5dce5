"""Shop task: buy what is asked for, in a shop that has more goods than a few demonstrations show.

``want lamp >`` is answered by ``lamp <end>``, then by ``have lamp want rope >``: what was bought, and the next wish.
Any good can be bought at any time, and the environment says which one it was. The right one earns its share of 1. The
demonstrator buys what is asked for, except in a share ``demonstrator_noise`` of its turns, in which it buys anything.

After WebShop (Yao et al., 2022). Differs from it: goods are words, and there is no search.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from thespis.core.spaces import word_vocabulary
from thespis.envs.text.task import RESPONSE_CUE, TaskSpec, TaskStep, TextEnv, pack_tokens
from thespis.runtime.keys import fold

GOODS = (
    *("apple", "axe", "bag", "ball", "basket", "bell", "belt", "blanket", "book", "boots", "bottle", "bowl"),
    *("box", "bread", "broom", "brush", "bucket", "candle", "chair", "cheese", "clock", "cloth", "coat", "comb"),
    *("cup", "drum", "fan", "flute", "fork", "glass", "glove", "hammer", "hat", "honey", "jar", "kettle"),
    *("key", "knife", "lamp", "lock", "map", "mirror", "needle", "pan", "pen", "rope", "saw", "soap"),
)
WISH, BOUGHT = "want", "have"
"""The words before the good that is asked for, and before the one that was bought."""


class Shop(eqx.Module):
    """Shop task with ``max_turns`` wishes, each of any of :data:`GOODS`.

    ``wishes``: indices of the goods that are asked for; if empty, all.
    """

    max_turns: int = eqx.field(static=True, default=4)
    wishes: tuple[int, ...] = eqx.field(static=True, default=())
    demonstrator_noise: float = 0.0

    @property
    def task_spec(self) -> TaskSpec:
        """Goods, and three other words."""
        words = word_vocabulary((RESPONSE_CUE, WISH, BOUGHT, *GOODS))
        return TaskSpec("text:shop", words, self.max_turns, 2, max_opening_tokens=3, max_message_tokens=5)

    def init(self, key: Key[Array, ""]) -> tuple[Int[Array, ""], Int[Array, " opening"]]:
        """A random first wish, and the message that asks for it."""
        spec, wish = self.task_spec, self._random_wish(key)
        return wish, pack_tokens(spec.max_opening_tokens, spec.encode(WISH), wish, spec.encode(RESPONSE_CUE))

    def step(
        self, state: Int[Array, ""], response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[Int[Array, ""], TaskStep]:
        """Buy the good that the response names, if it names one; then the next wish."""
        spec, first = self.task_spec, self.task_spec.encode_word(GOODS[0])
        buys = (response[0] >= first) & (response[0] < first + len(GOODS))
        buys &= response[1] == spec.vocabulary.eos_tokens[0]
        wish = self._random_wish(key)
        bought = jnp.where(buys, jnp.stack([jnp.asarray(spec.encode_word(BOUGHT), response.dtype), response[0]]), -1)
        message = pack_tokens(spec.max_message_tokens, bought, spec.encode(WISH), wish, spec.encode(RESPONSE_CUE))
        reward = (buys & (response[0] == state)) / jnp.float32(self.max_turns)
        return wish, TaskStep(message, reward, jnp.zeros((), bool))

    def demonstrator_response(self, state: Int[Array, ""], key: Key[Array, ""]) -> Int[Array, " response"]:
        """The good that is asked for, or any."""
        is_noise = jax.random.uniform(fold(key, "wander")) < self.demonstrator_noise
        good = jnp.where(is_noise, self._random_good(fold(key, "lot")), state)
        return jnp.stack([good, jnp.full((), self.task_spec.vocabulary.eos_tokens[0], good.dtype)])

    def _random_wish(self, key: Key[Array, ""]) -> Int[Array, ""]:
        if not self.wishes:
            return self._random_good(key)
        index = jax.random.randint(fold(key, "good"), (), 0, len(self.wishes))
        return self.task_spec.encode_word(GOODS[0]) + jnp.asarray(self.wishes)[index]

    def _random_good(self, key: Key[Array, ""]) -> Int[Array, ""]:
        return self.task_spec.encode_word(GOODS[0]) + jax.random.randint(fold(key, "good"), (), 0, len(GOODS))


SHOP = TextEnv(Shop())
"""Four wishes out of 48 goods."""
