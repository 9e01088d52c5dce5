r"""SELF: a language model that refines its own answers in words, and trains itself on those that it then approves of.

First it learns the meta-skills from labels: a critique :math:`f` of an answer :math:`r` to a prompt :math:`p`, and the
refined answer :math:`\hat r`:

.. math:: -\log \pi(f|p, r) - \log \pi(\hat r|p, r, f) - \log \pi(\hat r|p)

Then, in every round, it answers prompts without labels, criticizes and refines its answers, and criticizes the refined
ones. Those that it approves of are learned as direct answers, :math:`-\log \pi(\hat r|p)`, together with the labels.

Source: Lu et al., 2023.

Every round trains anew from the model before the labels ("restart").

Differs: on the labels and the refined answers of its round alone, not on those of all rounds.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from thespis.actors.lm_policy import DialogueSpec, LMPolicy, generate_responses
from thespis.core.contracts import Mode
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Number, Report, Transition
from thespis.data.feeds import Episodes
from thespis.envs.registry import make_compiled
from thespis.envs.text.task import RESPONSE_CUE
from thespis.language.sampling import TemperatureSampler
from thespis.learners.language.dialogues import Dialogues, single_turn_dialogues
from thespis.learners.language.lm_agent import TrainableLMAgent, init_opt_state, trainable_gradient_step
from thespis.nets.decoder import Decoder
from thespis.objectives.statistics import masked_mean
from thespis.runs.ranges import AT_LEAST_0, AT_LEAST_1, FRACTION, in_range
from thespis.runtime.keys import fold
from thespis.training.demonstrations import sample_demonstrations

ANSWER, CRITIQUE, REFINEMENT = range(3)
"""The turns of a dialogue."""


class SelfEvolutionState(eqx.Module):
    """Training state: the model, the model before the labels, and the labels as dialogues to learn from."""

    model: Decoder
    initial_model: Decoder
    labels: Dialogues
    dialogue_spec: DialogueSpec = eqx.field(static=True)


class SelfEvolution(TrainableLMAgent):
    """Self-evolution by language feedback: labels teach to criticize and refine, and refined answers are learned.

    For environments of three turns: an answer, a critique of it, and a refined answer
    (:class:`~thespis.papers.self.envs.SelfRefinement`). Every update is a round. Rewards are reported and not learned.
    """

    label_env: str = eqx.field(static=True, default="thespis.evidence.benches.habitual_errors:LABELS")
    """Environment of the same words whose demonstrator writes the labels, and whose task reads critiques."""
    num_labels: int = eqx.field(static=True, default=4, metadata=in_range(AT_LEAST_1))
    """Labelled prompts, others for each seed."""
    num_label_steps: int = eqx.field(static=True, default=25, metadata=in_range(AT_LEAST_0))
    """Gradient steps on labels before the first round."""
    labels_teach: Literal["skills", "answers"] = eqx.field(static=True, default="skills")
    """What labels teach: the meta-skills and the answers, or the answers alone."""
    learns_from: Literal["refined", "first", "labels"] = eqx.field(static=True, default="refined")
    """What is learned in a round: refined answers, first ones, or nothing but the labels."""
    self_filter: Literal["own", "random"] | None = eqx.field(static=True, default="own")
    """Which answers are learned: those that the model approves of, as many random ones, or all."""
    label_share: Number = eqx.field(default=0.3, metadata=in_range(FRACTION))
    """Share of labels in the batches of a round, above 0."""
    num_gradient_steps: int = eqx.field(static=True, default=75, metadata=in_range(AT_LEAST_0))
    """Gradient steps of a round, from the initial model; 0: the model stays as it is."""
    batch_size: int = eqx.field(static=True, default=32, metadata=in_range(AT_LEAST_1))
    """Dialogues per gradient step."""
    feed: Episodes = eqx.field(static=True, default=Episodes(max_steps=3, num_envs=256))
    """Feed of dialogues of three turns: num_envs (prompts of a round)."""

    name: ClassVar[str] = "self-evolution"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("SELF: Self-Evolution with Language Feedback", "Lu et al.", 2023, "arXiv:2310.00533"),
    )
    details: ClassVar[tuple[str, ...]] = ("every round trains anew from the initial model",)

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> SelfEvolutionState:
        """The model after its labels. Raises ``UserError`` for an environment without text."""
        model, dialogue_spec = self.init_from(spec, key), DialogueSpec.from_spec(spec)
        seed = jax.random.randint(fold(key, "labels"), (), 0, 2**31 - 1)
        labels = self.make_labels(*sample_demonstrations(make_compiled(self.label_env), self.num_labels, seed)[:3])
        log_share = jnp.zeros(len(labels.transcript))
        taught, _ = self.fit(model, labels, log_share, self.num_label_steps, fold(key, "lesson"))
        return SelfEvolutionState(taught, model, labels, dialogue_spec)

    def policy(self, state: SelfEvolutionState, mode: Mode) -> LMPolicy:
        """The decoder as policy."""
        return LMPolicy(state.model, self.sampler, state.dialogue_spec, mode)

    def judge(self, state: SelfEvolutionState, episode: Transition) -> Critique:
        """No critique in numbers: the model's are words."""
        return Critique()

    def make_labels(
        self,
        transcript: Int[Array, "row length"],
        response_starts: Int[Array, "time row"],
        responses: Int[Array, "time row token"],
    ) -> Dialogues:
        """Labels as dialogues to learn from: refined answers as direct ones, and with skills how they came about."""
        end = (transcript >= 0).sum(axis=1)
        starts = jnp.concatenate([response_starts, end[None]])
        turns, no_rows = jnp.arange(len(responses))[:, None], jnp.zeros(len(end), bool)
        is_skill = jnp.broadcast_to(turns > ANSWER, responses.shape[:2])
        skills = Dialogues(transcript, starts, responses, is_skill, jnp.zeros(is_skill.shape), no_rows)
        answers = as_answers(skills, responses[REFINEMENT])
        return answers.append_rows(skills) if self.labels_teach == "skills" else answers

    def update(self, state: SelfEvolutionState, batch: Batch, key: Key[Array, ""]) -> tuple[SelfEvolutionState, Report]:
        """A round: the model's verdicts on answers of a batch, and gradient steps on those that it approves of."""
        dialogues = Dialogues.from_transitions(batch.steps, batch.mask)
        turn = ANSWER if self.learns_from == "first" else REFINEMENT
        answers = as_answers(dialogues, dialogues.responses[turn])
        approves = jnp.zeros(len(answers.transcript), bool)
        if self.learns_from != "labels":
            approves = self.approves(state, answers, fold(key, "verdicts"))
        keeps = self.select(approves, fold(key, "filter"))
        rows = state.labels.append_rows(answers.padded_like(state.labels))
        num_labels, num_kept = len(state.labels.transcript), keeps.sum()
        log_share = jnp.concatenate(
            [
                jnp.full(num_labels, jnp.log(self.label_share / num_labels)),
                jnp.where(keeps, jnp.log((1.0 - self.label_share) / jnp.maximum(num_kept, 1)), -jnp.inf),
            ]
        )
        model, loss = state.model, jnp.zeros(())
        if self.num_gradient_steps:
            model, loss = self.fit(state.initial_model, rows, log_share, self.num_gradient_steps, fold(key, "fit"))
        right = dialogues.reward
        metrics = {
            "loss": loss,
            "first_right": right[ANSWER].mean(),
            "refined_right": right[REFINEMENT].mean(),
            "approved": approves.mean(dtype="float32"),
            "approved_right": masked_mean(right[turn], approves),
            "learned": keeps.mean(dtype="float32"),
            "learned_right": masked_mean(right[turn], keeps),
        }
        return dataclasses.replace(state, model=model), Report(metrics)

    def approves(self, state: SelfEvolutionState, answers: Dialogues, key: Key[Array, ""]) -> Bool[Array, " row"]:
        """Whether the model's own critique of each answer finds nothing wrong with it."""
        env: Any = make_compiled(self.label_env)
        task = env.task.task
        transcript = jnp.pad(answers.transcript, ((0, 0), (0, 1)), constant_values=-1)
        is_next = jnp.arange(transcript.shape[1]) == answers.response_starts[-1][:, None]
        texts = jnp.where(is_next, task.task_spec.encode_word(RESPONSE_CUE), transcript)
        critiques = generate_responses(state.model, self.sampler, state.dialogue_spec, texts, key)
        return jax.vmap(task.critique_judgment)(critiques) == 1

    def select(self, approves: Bool[Array, " row"], key: Key[Array, ""]) -> Bool[Array, " row"]:
        """Which answers are learned."""
        if self.learns_from == "labels":
            return jnp.zeros_like(approves)
        if self.self_filter is None:
            return jnp.ones_like(approves)
        return approves if self.self_filter == "own" else jax.random.permutation(key, approves)

    def fit(
        self, model: Decoder, rows: Dialogues, log_share: Float[Array, " row"], num_steps: int, key: Key[Array, ""]
    ) -> tuple[Decoder, Float[Array, ""]]:
        """Maximum likelihood of rows that are drawn by their shares, and the mean loss; with a new optimizer."""
        optimizer, sampler = self.make_optimizer(), TemperatureSampler()

        def step(carry: Any, tick: Array) -> Any:
            chosen = jax.random.categorical(fold(key, "rows", tick), log_share, shape=(self.batch_size,))
            dialogues = rows.take_rows(chosen)

            def loss_fn(model: Decoder) -> tuple[Float[Array, ""], Float[Array, ""]]:
                loss = -masked_mean(dialogues.response_log_probs(model, sampler)[0], dialogues.response_mask)
                return loss, loss

            model, opt_state, loss, _ = trainable_gradient_step(optimizer, loss_fn, *carry)
            return (model, opt_state), loss

        if num_steps == 0:
            return model, jnp.zeros(())
        (model, _), losses = jax.lax.scan(step, (model, init_opt_state(optimizer, model)), jnp.arange(num_steps))
        return model, losses.mean()


def as_answers(dialogues: Dialogues, responses: Int[Array, "row token"]) -> Dialogues:
    """Dialogues of the same size that end with ``responses`` to the first messages."""
    is_answered = jnp.ones(len(responses), bool)
    return single_turn_dialogues(dialogues.text_before(0), responses, is_answered).padded_like(dialogues)
