"""Kuhn poker as a text task against a random opponent: three cards, an ante of one chip each, one bet.

``hold queen start >`` asks to begin; ``hold queen pass >`` and ``hold queen bet >`` report the opponent's first move.
``bet <end>`` bets a chip or calls a bet, anything else passes or folds; if the opponent bets after a pass, ``bet >``
asks once more. Who folds loses a chip; otherwise the higher card of jack, queen, king wins one, or two if a bet was
called. The reward is the chips won, from -2 to 2. Who begins is random.

The demonstrator always bets, but folds a jack to a bet, which is optimal against this opponent; a share
``demonstrator_noise`` of its turns are random. After Kuhn (1950). Differs from it: the other player is part of the
environment and random.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from thespis.core.spaces import END, word_vocabulary
from thespis.envs.text.task import RESPONSE_CUE, TaskSpec, TaskStep, cut_at_eos, pack_tokens
from thespis.runtime.keys import fold

CARDS = ("jack", "queen", "king")


class KuhnState(eqx.Module):
    """State of one game: both cards, whether the agent moves first, and whether it has to answer a bet.

    The agent's own card comes first, then the opponent's.
    """

    cards: Int[Array, "*episodes 2"]
    acts_first: Bool[Array, "*episodes"]
    facing_bet: Bool[Array, "*episodes"]


class Kuhn(eqx.Module):
    """Kuhn poker as a text task against a random opponent.

    ``demonstrator_noise``: the share of the demonstrator's turns that are random.
    """

    demonstrator_noise: float = 0.8

    @property
    def task_spec(self) -> TaskSpec:
        """Cards and five more words."""
        words = word_vocabulary((RESPONSE_CUE, "hold", "start", "pass", "bet", *CARDS))
        return TaskSpec(
            "text:kuhn",
            words,
            max_turns=2,
            max_response_tokens=2,
            max_opening_tokens=4,
            max_message_tokens=2,
            choices=("bet", "pass"),
        )

    def init(self, key: Key[Array, ""]) -> tuple[KuhnState, Int[Array, " opening"]]:
        """Two cards, and the opponent's move if it begins."""
        spec = self.task_spec
        cards = jax.random.permutation(fold(key, "cards"), len(CARDS))[:2]
        acts_first, bets = jax.random.bernoulli(fold(key, "first")), jax.random.bernoulli(fold(key, "bet"))
        first_move = jnp.where(
            acts_first, spec.encode_word("start"), jnp.where(bets, spec.encode_word("bet"), spec.encode_word("pass"))
        )
        message = pack_tokens(
            spec.max_opening_tokens,
            spec.encode("hold"),
            spec.encode_word(CARDS[0]) + cards[0],
            first_move,
            spec.encode(RESPONSE_CUE),
        )
        return KuhnState(cards, acts_first, bets & ~acts_first), message

    def step(
        self, state: KuhnState, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[KuhnState, TaskStep]:
        """The result of a bet or a pass, with the random reply of the opponent."""
        spec = self.task_spec
        tokens, length = cut_at_eos(spec, response)
        bets = (tokens[0] == spec.encode_word("bet")) & (length == 1)
        coin = jax.random.bernoulli(fold(key, "coin"))
        continues = ~bets & ~state.facing_bet & state.acts_first & coin
        higher = jnp.where(state.cards[0] > state.cards[1], 1.0, -1.0)
        reward_facing_bet = jnp.where(bets, 2 * higher, -1.0)
        reward_otherwise = jnp.where(bets, jnp.where(coin, 2 * higher, 1.0), higher)
        reward = jnp.where(continues, 0.0, jnp.where(state.facing_bet, reward_facing_bet, reward_otherwise))
        message = jnp.where(continues, jnp.asarray(spec.encode(f"bet {RESPONSE_CUE}")), -1)
        return KuhnState(state.cards, state.acts_first, state.facing_bet | continues), TaskStep(
            message, reward, ~continues
        )

    def demonstrator_response(self, state: KuhnState, key: Key[Array, ""]) -> Int[Array, " response"]:
        """A bet, except a fold of a jack to a bet; or a random move."""
        spec = self.task_spec
        is_noise = jax.random.uniform(fold(key, "wander")) < self.demonstrator_noise
        bets = jnp.where(is_noise, jax.random.bernoulli(fold(key, "lot")), ~state.facing_bet | (state.cards[0] > 0))
        return pack_tokens(
            spec.max_response_tokens,
            jnp.where(bets, spec.encode_word("bet"), spec.encode_word("pass")),
            spec.encode(END),
        )
