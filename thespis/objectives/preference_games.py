r"""Preference games: which response of a finite set is preferred to which, and how far a policy is from equilibrium.

A game is a matrix ``preferences[i, j]``, the probability that response ``i`` is preferred to ``j``. Its two players
each choose a response, and the one whose response is preferred wins: a symmetric game of value 1/2, whose equilibrium
is the Nash policy, also called the minimax or von Neumann winner. Preferences may be cyclic: then no reward explains
them, and no single response is best.

Sources: Munos et al., 2023 (Nash learning from human feedback, arXiv:2312.00886, section 3); Swamy et al., 2024
(arXiv:2401.04056).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thespis.core.records import Number

Preferences = Float[Array, "response response"]
Policy = Float[Array, " response"]


def cyclic_preferences(num_responses: int, seed: int = 0, noise: float = 0.2, strength: float = 0.8) -> np.ndarray:
    """A random preference matrix ``[response, response]`` in which every response is beaten by about half of the rest.

    Responses stand on a circle in random order: each is preferred to those of the half circle after it, with a
    probability of ``(1 + strength) / 2`` on average. ``noise``: the half width of the uniform noise on probabilities.
    Two opposite ones of an even number have probability 1/2, but for the noise.
    """
    rng = np.random.default_rng(seed)
    place = rng.permutation(num_responses)
    ahead = (place[None, :] - place[:, None]) % num_responses
    sign = np.where(2 * ahead == num_responses, 0.0, np.where(2 * ahead < num_responses, 1.0, -1.0))
    upper = np.triu(0.5 * strength * sign + rng.uniform(-noise, noise, sign.shape), 1)
    return np.clip(0.5 + upper - upper.T, 0.0, 1.0).astype("float32")


def equilibrium(preferences: np.ndarray) -> np.ndarray:
    """The Nash policy ``[response]`` of a table, by linear programming: the one whose worst win rate is largest."""
    from scipy.optimize import linprog  # imported here, as it takes longer than the rest of this module

    count = len(preferences)
    result = linprog(
        np.r_[np.zeros(count), -1.0],
        A_ub=np.c_[-np.asarray(preferences, "float64").T, np.ones(count)],
        b_ub=np.zeros(count),
        A_eq=[np.r_[np.ones(count), 0.0]],
        b_eq=[1.0],
        bounds=[(0, 1)] * count + [(None, None)],
    )
    return result.x[:count]


def add_dominated(preferences: np.ndarray, num_dominated: int, domination: float) -> np.ndarray:
    """A table with further responses, each preferred to those before with a probability of only ``1 - domination``.

    Among themselves they are equally good. The equilibrium of the larger table does not choose them where
    ``domination`` is above the win rates within the smaller.
    """
    count = len(preferences)
    table = np.full((count + num_dominated,) * 2, 0.5, "float32")
    table[:count, :count] = preferences
    table[:count, count:], table[count:, :count] = domination, 1.0 - domination
    return table


def win_rates(preferences: Preferences, opponent: Policy) -> Policy:
    """The probability of each response to be preferred to one of the opponent's."""
    return preferences @ opponent


def exploitability(preferences: Preferences, policy: Policy) -> Float[Array, ""]:
    """How much more often than half the best response to a policy wins, in [0, 1/2]; 0 at the equilibrium."""
    return jnp.max(win_rates(preferences, policy)) - 0.5


def geometric_mixture(log_policy: Policy, log_reference: Policy, reference_weight: Number) -> Policy:
    """Log-probabilities of the geometric mixture of a policy and a reference."""
    return jax.nn.log_softmax((1 - reference_weight) * log_policy + reference_weight * log_reference)


def mirror_descent_step(log_policy: Policy, payoffs: Policy, step_size: Number) -> Policy:
    """Log-probabilities after a step of mirror descent on payoffs (Hedge): multiplied by ``exp(step_size * payoff)``.

    With the win rates against the policy itself this is self-play, which cycles around an equilibrium.
    """
    return jax.nn.log_softmax(log_policy + step_size * payoffs)


def nash_md_step(
    log_policy: Policy, log_reference: Policy, preferences: Preferences, kl_coef: Number, step_size: Number
) -> Policy:
    r"""Log-probabilities after a step of Nash mirror descent (Munos et al. 2023, equation 4).

    .. math::
        \pi_{t+1} \propto \pi_t^\mu \exp(\eta P(\cdot \succ \pi_t^\mu)), \quad
        \pi_t^\mu \propto \pi_t^{1 - \eta \tau} \mu^{\eta \tau}

    Its last iterate converges to the equilibrium of the game with a penalty :math:`\tau`, ``kl_coef``, on KL to the
    reference :math:`\mu`; that is within :math:`\tau \max \log 1 / \mu` of one of the game itself. ``step_size``:
    :math:`\eta`, at most ``1 / kl_coef``.
    """
    mixture = geometric_mixture(log_policy, log_reference, step_size * kl_coef)
    return mirror_descent_step(mixture, win_rates(preferences, jnp.exp(mixture)), step_size)
