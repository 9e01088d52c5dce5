"""Report on a critic: what its critiques are worth to the solver that reads them.

In a conversation of solver and critic (:class:`~thespis.envs.text.critique.CritiqueConversation`) an answer is
right or wrong before the critique and after it. A useful critic repairs wrong answers and spoils few right ones. Seats
can be played by the demonstrator: in the critic's place that is what an exact critique is worth to the same solver.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, PyTree

from thespis.core.errors import UserError
from thespis.envs.text.critique import CritiqueConversation, CritiqueConversationState, HasCritiqueJudgments
from thespis.evaluation.conversations import play_conversations
from thespis.runtime.keys import fold, seed_key


@dataclasses.dataclass(frozen=True)
class CriticReport:
    """Shares of answers, one for each seed.

    ``first_accuracy`` and ``final_accuracy``: answers that are right before and after the critique. ``repaired``: wrong
    answers that are right after it; ``spoiled``: right answers that are wrong after it (not a number where there are
    none). ``judgment_accuracy``: critiques that say rightly whether an answer is right (not a number where the task
    cannot read what they say).
    """

    first_accuracy: Float[np.ndarray, " seed"]
    final_accuracy: Float[np.ndarray, " seed"]
    repaired: Float[np.ndarray, " seed"]
    spoiled: Float[np.ndarray, " seed"]
    judgment_accuracy: Float[np.ndarray, " seed"]

    @property
    def lift(self) -> Float[np.ndarray, " seed"]:
        """By how much the critique raises the share of right answers."""
        return self.final_accuracy - self.first_accuracy

    @property
    def sentence(self) -> str:
        """The means over seeds in words."""
        first, final, repaired, spoiled = (
            _percent(x) for x in (self.first_accuracy, self.final_accuracy, self.repaired, self.spoiled)
        )
        judged = ""
        if not np.isnan(self.judgment_accuracy).all():
            judged = f" It says of {_percent(self.judgment_accuracy)} rightly whether they are right."
        return (
            f"{first} of the answers are right before the critique and {final} after it: it repairs {repaired} of the "
            f"wrong ones and spoils {spoiled} of the right ones.{judged}"
        )


def _percent(shares: Float[np.ndarray, " seed"]) -> str:
    """The mean over seeds, as a percentage."""
    return f"{100 * np.nanmean(shares):.1f}%"


def report_on_critic(
    env: Any,
    method: Any = None,
    states: PyTree = None,
    num_episodes: int = 500,
    scripted: Sequence[str] = (),
    right_reward: float = 1.0,
    seed: int = 0,
) -> CriticReport:
    """Play conversations by sampling, and count what critiques repair and spoil.

    The arguments are those of :func:`play_critiques`. An answer is right if its reward is at least ``right_reward``.

    Raises:
        UserError: for another environment.
    """
    inner, rewards = play_critiques(env, method, states, num_episodes, scripted, seed)
    first, final = (np.asarray(x) >= right_reward for x in (inner.answer_reward, rewards))

    def share(of: np.ndarray, among: np.ndarray) -> np.ndarray:
        counts = among.sum(axis=1)
        return np.where(counts > 0, (of & among).sum(axis=1) / np.maximum(counts, 1), np.nan)

    rules = env.rules
    judged = np.asarray(jax.vmap(jax.vmap(lambda state: rules.judges_rightly(state)))(inner)).mean(axis=1)
    judgment_accuracy = judged if isinstance(rules.task, HasCritiqueJudgments) else np.full(len(judged), np.nan)
    return CriticReport(
        first.mean(axis=1), final.mean(axis=1), share(final, ~first), share(~final, first), judgment_accuracy
    )


def play_critiques(
    env: Any,
    method: Any = None,
    states: PyTree = None,
    num_episodes: int = 500,
    scripted: Sequence[str] = (),
    seed: int = 0,
) -> tuple[CritiqueConversationState, Float[Array, "seed episode"]]:
    """Play conversations by sampling: the final states of the rules and the rewards of the second answers.

    ``env``: a conversation of solver and critic. ``states``: ``[seed, ...]`` of the ``method``, as in ``run.states``.
    ``scripted``: seats that the environment's demonstrator plays; without a method, all of them (one seed). All
    results are ``[seed, episode, ...]``; equal seeds have equal tasks.

    Raises:
        UserError: for another environment.
    """
    rules = getattr(env, "rules", None)
    if not isinstance(rules, CritiqueConversation):
        raise UserError(f"{env.spec.name} is no conversation of a solver and a critic")
    key = fold(seed_key(seed), "critic report")

    def play(state: PyTree) -> tuple[CritiqueConversationState, Array]:
        final, rewards = play_conversations(env, num_episodes, key, method, state, scripted)
        return final.inner, rewards[-1]

    if method is None:
        return jax.tree.map(lambda x: x[None], eqx.filter_jit(lambda: play(None))())
    return eqx.filter_jit(lambda states: jax.vmap(play)(states))(states)
