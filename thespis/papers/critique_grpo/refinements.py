"""Refinements in the group: how answers after a critique are learned as answers without it."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Key

from thespis.actors.lm_policy import DialogueSpec
from thespis.core.errors import UserError
from thespis.core.records import Number
from thespis.learners.language.dialogues import SampledDialogues, single_turn_dialogues, with_log_probs
from thespis.learners.language.policy_losses import ClippedSurrogate, PolicyLoss, TokenArray
from thespis.learners.language.revisions import as_first_attempts
from thespis.learners.language.rollout_transforms import RolloutTransform
from thespis.nets.decoder import Decoder
from thespis.papers.critique_grpo.envs import WrongWraps


class RefinementsInGroup(RolloutTransform):
    r"""Mixed groups of initial answers and refinements: both are learned as answers to the task alone.

    For dialogues of an answer, a critique and a second answer, each with a reward of its own. A group becomes its first
    answers and the ``num_refinements`` best of its second answers, of equal ones the first. A refinement follows the
    task as if it had been the first answer: neither the critique nor the answer before it is read. Its tokens get the
    log-probability 0, by which :class:`ShapedRefinements` knows them.

    For dialogues of one turn the second half of each group takes the place of the refinements: answers that have read
    no critique, which are chosen and learned in the same way.

    Source: Zhang et al. 2025 (Critique-GRPO), their code: seven answers and one refinement.
    """

    num_refinements: int = eqx.field(static=True, default=1)
    """Refinements of a group that are learned."""

    def init(self, model: Decoder, dialogue_spec: DialogueSpec, num_turns: int, key: Key[Array, ""]) -> tuple[()]:
        """An empty state. Raises ``UserError`` for dialogues of more than two turns, or of several players."""
        if dialogue_spec.num_players > 1 or num_turns > 2:
            raise UserError(
                f"RefinementsInGroup is for an answer and a refinement of one model, not for {num_turns} turns of "
                f"{dialogue_spec.num_players} players"
            )
        return ()

    def __call__(
        self, state: tuple[()], dialogues: SampledDialogues, group_size: int, key: Key[Array, ""]
    ) -> tuple[tuple[()], SampledDialogues, dict[str, Array]]:
        """Groups of first answers and chosen refinements, in dialogues of one turn."""
        initial, refined = _attempts(dialogues, group_size)
        num_groups = dialogues.alive.shape[1] // group_size
        rewards = refined.returns.reshape(num_groups, -1)
        best = jnp.argsort(-rewards, axis=1, stable=True)[:, : self.num_refinements]
        chosen = refined.take_rows((best + rewards.shape[1] * jnp.arange(num_groups)[:, None]).reshape(-1))
        mixed = _interleave(initial, _as_off_policy(chosen), num_groups)
        unsolved = _is_unsolved(initial, num_groups)
        metrics = {
            "initial_reward": initial.returns.mean(),
            "refinement_reward": rewards.mean(),
            "unsolved": unsolved.mean(dtype="float32"),
            "rescued": (unsolved & (rewards > 0).any(axis=1)).mean(dtype="float32"),
        }
        return state, mixed, metrics


class DemonstrationsInGroup(RolloutTransform):
    """Mixed groups of initial answers and copies of a demonstration, which is learned as a refinement is.

    Source: Yan et al. 2025 (LUFFY), the off-policy guidance that Critique-GRPO is compared with.
    """

    task: WrongWraps = WrongWraps()
    """Task that demonstrates the right response to a prompt."""
    num_copies: int = eqx.field(static=True, default=1)
    """Copies of the demonstration in a group."""

    def init(self, model: Decoder, dialogue_spec: DialogueSpec, num_turns: int, key: Key[Array, ""]) -> tuple[()]:
        """An empty state. Raises ``UserError`` for dialogues of several turns."""
        if num_turns > 1:
            raise UserError(f"DemonstrationsInGroup is for dialogues of one turn, not of {num_turns}: feed.max_steps=1")
        return ()

    def __call__(
        self, state: tuple[()], dialogues: SampledDialogues, group_size: int, key: Key[Array, ""]
    ) -> tuple[tuple[()], SampledDialogues, dict[str, Array]]:
        """Groups of answers and their demonstration, which earns 1."""
        initial = _turn(dialogues, 0)
        num_groups = dialogues.alive.shape[1] // group_size
        prompts = initial.text_before(0)[jnp.repeat(jnp.arange(num_groups) * group_size, self.num_copies)]
        demonstration = jax.vmap(self.task.demonstration)(prompts)
        single = single_turn_dialogues(prompts, demonstration, jnp.ones(len(prompts), bool))
        single = dataclasses.replace(single, transcript=single.transcript[:, : prompts.shape[1]])
        shown = with_log_probs(dataclasses.replace(single, reward=jnp.ones_like(single.reward)))
        unsolved = _is_unsolved(initial, num_groups)
        metrics = {"initial_reward": initial.returns.mean(), "unsolved": unsolved.mean(dtype="float32")}
        return state, _interleave(initial, shown, num_groups), metrics


def _attempts(dialogues: SampledDialogues, group_size: int) -> tuple[SampledDialogues, SampledDialogues]:
    """First answers and refinements, as dialogues of one turn; of dialogues of one turn the halves of each group."""
    if len(dialogues.alive) == 2:
        return _turn(dialogues, 0), _turn(dialogues, 1)
    member = jnp.arange(dialogues.alive.shape[1]).reshape(-1, group_size)
    half = (group_size + 1) // 2
    answers = _turn(dialogues, 0)
    return answers.take_rows(member[:, :half].reshape(-1)), answers.take_rows(member[:, half:].reshape(-1))


def _turn(dialogues: SampledDialogues, turn: int) -> SampledDialogues:
    """The responses of a turn as answers to the task, in dialogues of one turn."""
    return as_first_attempts(dialogues, jnp.full(dialogues.alive.shape[1], turn == 1))


def _is_unsolved(answers: SampledDialogues, num_groups: int) -> Bool[Array, " group"]:
    """Groups in which no answer is right."""
    return ~(answers.returns.reshape(num_groups, -1) > 0).any(axis=1)


def _as_off_policy(dialogues: SampledDialogues) -> SampledDialogues:
    """The same as if each token had been sampled with probability 1."""
    return dataclasses.replace(dialogues, log_probs=jnp.zeros_like(dialogues.log_probs))


def _interleave(first: SampledDialogues, second: SampledDialogues, num_groups: int) -> SampledDialogues:
    """The rows of both batches, group by group."""
    both = first.append_rows(second)
    index = jnp.arange(both.alive.shape[1])
    parts = [index[: first.alive.shape[1]], index[first.alive.shape[1] :]]
    order = jnp.concatenate([part.reshape(num_groups, -1) for part in parts], axis=1)
    return both.take_rows(order.reshape(-1))


class ShapedRefinements(PolicyLoss):
    r"""Clipped surrogate of own answers, and a shaped likelihood of refinements.

    The loss of a refinement's token of probability :math:`\pi` is :math:`-A \pi / (\pi + \gamma)`. Its gradient is
    :math:`-A \gamma \pi / (\pi + \gamma)^2 \nabla \log \pi`: the largest where :math:`\pi = \gamma`, and of unlikely
    tokens :math:`1 / \gamma` times that of :math:`-A \pi`. Tokens that were sampled with probability 1 count as those
    of refinements; where that is an own token, its gradient is nearly 0 in both.

    Source: Zhang et al. 2025, with ``p_div_p_0.1`` in their code, as in LUFFY (Yan et al. 2025).
    """

    gamma: Number | None = 0.1
    """Probability of the largest gradient; None: the likelihood itself, without shaping."""
    own: PolicyLoss = ClippedSurrogate()
    """Policy loss of own answers."""

    def __call__(self, log_prob: TokenArray, log_ratio: TokenArray, advantage: TokenArray) -> TokenArray:
        """Loss of each token; ``log_ratio`` equals ``log_prob`` at those of refinements."""
        advantage = jax.lax.stop_gradient(advantage)
        prob = jnp.exp(log_prob)
        shaped = prob if self.gamma is None else prob / (prob + self.gamma)
        is_refinement = log_ratio == log_prob
        return jnp.where(is_refinement, -advantage * shaped, self.own(log_prob, log_ratio, advantage))
