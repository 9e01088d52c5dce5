r"""Reward model of the quality gap between a response and a reference, fitted to preferences and then frozen.

It reads a prompt, a reference and a response in one text, and is trained on four combinations of the two responses of a
preference pair, whose gaps have an order (first the response, then the reference):

.. math:: r(y_w, y_l) \ge r(y_w, y_w), r(y_l, y_l) \ge r(y_l, y_w)

.. math:: \min\; -\sum_{(a, b)} \log \sigma(r_a - r_b)

with the five pairs :math:`(a, b)` that this order implies. Without a reference it is an ordinary reward model of the
same pairs.

Source: Wang et al., 2023.

Differs: a score is the log-likelihood of the response by a language model that starts as the initial model, in place of
a linear head on one, which learns too slowly at this size. It is fitted once, and is the same for all seeds, as the
initial model is.
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from thespis.actors.lm_policy import DialogueSpec
from thespis.core.records import Citation, EnvSpec, Number
from thespis.envs.registry import make_compiled
from thespis.feedback.fitted_reward import fit_on_rows
from thespis.feedback.text_model import TextModelFeedback
from thespis.language.sampling import TemperatureSampler
from thespis.learners.language.dialogues import Dialogues, single_turn_dialogues
from thespis.nets.decoder import Decoder
from thespis.runtime.keys import fold, seed_key

_SAMPLER = TemperatureSampler(1.0)


class FittedLikelihood(eqx.Module):
    """A language model, and mean and standard deviation of its scores of the responses that it was fitted to."""

    model: Decoder
    mean: Float[Array, ""]
    scale: Float[Array, ""]


def gap_loss(gaps: Float[Array, "4 pair"]) -> Float[Array, ""]:
    """The loss of gaps between responses and references, first the response: w over l, w over w, l over l, l over w.

    ``w`` is the preferred response of a pair, ``l`` the other one.
    """
    better, same, also_same, worse = gaps
    differences = jnp.stack([better - same, better - also_same, same - worse, also_same - worse, better - worse])
    return -jax.nn.log_sigmoid(differences).mean()


class GapReward(TextModelFeedback):
    """Quality gap over a reference, for text: learned from preference pairs before the first update, then frozen."""

    labelling_env: str = eqx.field(static=True, default="")
    """Environment with a dataset of preference pairs: it has ``num_pairs``, ``comparison`` and ``prompt``."""
    reads_reference: bool = eqx.field(static=True, default=True)
    """Whether the reward model reads a reference; otherwise it is an ordinary one of the same pairs."""
    num_reward_steps: int = eqx.field(static=True, default=60)
    """Gradient steps of the reward model."""
    reward_batch_size: int = eqx.field(static=True, default=32)
    """Pairs per gradient step."""
    reward_learning_rate: Number = 1e-3
    """Step size of the reward model."""

    name: ClassVar[str] = "gap-reward"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "Enable Language Models to Implicitly Learn Self-Improvement From Data",
            "Wang et al.",
            2023,
            "arXiv:2310.00898",
        ),
    )

    def init_state(self, spec: EnvSpec, dialogue_spec: DialogueSpec, key: Key[Array, ""]) -> FittedLikelihood:
        """The fitted reward model, the same for every seed."""
        env: Any = make_compiled(self.labelling_env)
        key = fold(seed_key(0), self.name)
        model = fit_on_rows(
            self.initial_model(spec, key),
            lambda model, rows: self.loss(self.pair_scores(model, env, rows)),
            env.num_pairs,
            self.reward_batch_size,
            self.num_reward_steps,
            self.reward_learning_rate,
            key,
        )
        scores = self.pair_scores(model, env, jnp.arange(min(512, env.num_pairs)))
        return FittedLikelihood(model, scores.mean(), scores.std())

    def pair_scores(self, model: Decoder, env: Any, rows: Int[Array, " chosen"]) -> Float[Array, "kind chosen"]:
        """Scores of pairs: the four gaps of :func:`gap_loss`, or of the preferred response and the other one."""
        pairs = jax.vmap(env.comparison)(rows)
        better, worse = pairs.preferred, pairs.other
        responses, references = (better, better, worse, worse), (worse, better, worse, better)
        if not self.reads_reference:
            responses, references = (better, worse), (jnp.full_like(better, -1),) * 2
        prompts = jax.vmap(env.prompt)(jnp.concatenate([pairs.phrase] * len(responses)), jnp.concatenate(references))
        texts = jnp.concatenate(responses)
        dialogues = single_turn_dialogues(prompts, texts, jnp.ones(len(texts), bool))
        return last_log_likelihood(model, dialogues).reshape(len(responses), -1)

    def loss(self, scores: Float[Array, "kind chosen"]) -> Float[Array, ""]:
        """That of gaps, or of Bradley and Terry where no reference is read."""
        return gap_loss(scores) if self.reads_reference else -jax.nn.log_sigmoid(scores[0] - scores[1]).mean()

    def score_turns(
        self, state: FittedLikelihood, dialogues: Dialogues, key: Key[Array, ""]
    ) -> Float[Array, "time row"]:
        """The standardized reward of each dialogue at its last response; 0 at all others."""
        scores = (last_log_likelihood(state.model, dialogues) - state.mean) / (state.scale + 1e-6)
        return jax.lax.stop_gradient(jnp.where(dialogues.is_last_turn, scores, 0.0))


def last_log_likelihood(model: Decoder, dialogues: Dialogues) -> Float[Array, " row"]:
    """Log-likelihood of each dialogue's last response, given all that was said before."""
    log_probs, _ = dialogues.response_log_probs(model, _SAMPLER)
    is_last = dialogues.response_mask & dialogues.is_last_turn[..., None]
    return jnp.where(is_last, log_probs, 0.0).sum(axis=(0, 2))
