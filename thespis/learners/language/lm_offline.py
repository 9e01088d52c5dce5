"""Language models that learn from whole dialogues: the shared base of methods with a loss on response tokens.

A batch holds whole dialogues, of a dataset or, in ``online-dpo``, sampled by the model. The loss is over their response
tokens, with a reference model and a critic where a method needs them.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.actors.lm_policy import DialogueSpec, LMPolicy
from thespis.core.contracts import Mode
from thespis.core.records import Batch, Critique, EnvSpec, Report, Transition
from thespis.core.spaces import Text
from thespis.learners.language.dialogues import Dialogues, with_critic_observation
from thespis.learners.language.lm_agent import TrainableLMAgent, init_opt_state, trainable_gradient_step
from thespis.learners.language.response_critics import ResponseCritic
from thespis.nets.decoder import Decoder
from thespis.runtime.keys import fold


class LMOfflineState(eqx.Module):
    """Training state: model, optimizer, reference and critic."""

    model: Decoder
    opt_state: PyTree
    dialogue_spec: DialogueSpec = eqx.field(static=True)
    reference: PyTree
    """The reference decoder; ``()`` if there is none."""
    critic: PyTree
    """The critic's state; ``()`` if there is none."""


class OfflineBatch(eqx.Module):
    """Batch of an offline loss: everything that it may use besides the model."""

    dialogues: Dialogues
    ref_log_probs: Float[Array, "time row token"]
    """Log-probabilities by the reference; zeros if there is none."""
    values: PyTree
    """The critic's values before each token and after the last, ``[turns, row, token]``; ``()`` if it has none."""
    transitions: Transition
    """The transitions that the dialogues come from."""
    dialogue_spec: DialogueSpec = eqx.field(static=True)
    reference: PyTree
    key: Key[Array, ""]
    update_index: int | Int[Array, ""] = 0
    """Number of updates before this one."""
    critic: PyTree = ()
    """The critic's state after its update."""

    def sample_turn(self) -> tuple[Int[Array, "row length"], Int[Array, " row"], Int[Array, " row"]]:
        """One turn of each dialogue, sampled uniformly: transcript before it, index of the turn, row indices."""
        rows = jnp.arange(self.dialogues.alive.shape[1])
        turn = jax.random.categorical(self.key, jnp.where(self.dialogues.alive, 0.0, -jnp.inf), axis=0)
        return self.transitions.view.observation[turn, rows], turn, rows


class LMOfflineSettings(eqx.Module):
    """Parts of an offline method that a concrete class supplies."""

    critic: eqx.AbstractVar[ResponseCritic]

    @property
    @abc.abstractmethod
    def uses_reference(self) -> bool:
        """Whether a reference is stored: a copy of the initial model."""

    @property
    @abc.abstractmethod
    def uses_returns(self) -> bool:
        """Whether the loss depends on returns. If not, all responses of the dataset are learned as demonstrations."""


class LMOffline(TrainableLMAgent, LMOfflineSettings):
    """Base of methods with a loss on dialogues. A concrete one defines it, and may collect with another policy."""

    ref_sync_interval: int = eqx.field(static=True, default=0)
    """Updates after which the reference, where there is one, is synchronized with the model; 0: it never changes."""
    reference_model: str | None = eqx.field(static=True, default=None)
    """The reference's parameters, where there is a reference: a checkpoint or a run; None: the initial model's."""
    privileged_critic: bool = eqx.field(static=True, default=True)
    """Whether the critic reads the environment's privileged information, where there is any."""
    starts_after_critic: ClassVar[bool] = False
    """Whether the model's optimizer starts after the critic's pretraining, and its loss is not computed before. If not,
    it also makes the steps of the pretraining, with gradients of zero: they leave the model as it is, but a schedule
    and the bias corrections of Adam count them."""

    @abc.abstractmethod
    def compute_loss(self, model: Decoder, batch: OfflineBatch) -> tuple[Float[Array, ""], dict[str, Array]]:
        """The loss to be minimized, and metrics."""

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> LMOfflineState:
        """The model that ``model`` names, with reference and critic.

        Raises ``UserError`` for an environment without text.
        """
        dialogue_spec = DialogueSpec.from_spec(spec)
        model = self.init_from(spec, key)
        reference = self.init_reference(model, self.reference_model, spec, key) if self.uses_reference else ()
        critic = self.critic.init_from(model, self._critic_spec(spec), fold(key, "critic"))
        return LMOfflineState(model, init_opt_state(self.make_optimizer(), model), dialogue_spec, reference, critic)

    def policy(self, state: LMOfflineState, mode: Mode) -> LMPolicy:
        """The decoder as policy."""
        return LMPolicy(state.model, self.sampler, state.dialogue_spec, mode)

    def judge(self, state: LMOfflineState, episode: Transition) -> Critique:
        """The critic's values of the dialogue before each response, if there is a critic."""
        steps = jax.tree.map(lambda x: x[:, None], episode)
        dialogues = self._critic_dialogues(steps, jnp.ones(steps.reward.shape, bool))
        values: Any = self.critic.values(state.critic, state.reference, dialogues)
        return Critique() if values is None else Critique(value=values[:-1, 0, 0])

    def update(self, state: LMOfflineState, batch: Batch, key: Key[Array, ""]) -> tuple[LMOfflineState, Report]:
        """One step of the critic on whole dialogues, then one of the model."""
        dialogues, reference = Dialogues.from_transitions(batch.steps, batch.mask), state.reference
        if self.uses_reference and self.ref_sync_interval:
            is_sync = batch.update_index % self.ref_sync_interval == 0
            reference = jax.tree.map(lambda new, old: jnp.where(is_sync, new, old), state.model, reference)
        ref_log_probs = jnp.zeros(dialogues.response_mask.shape)
        if self.uses_reference:
            ref_log_probs = jax.lax.stop_gradient(dialogues.response_log_probs(reference, self.sampler)[0])
        log_ratio = ()
        if self.critic.needs_log_ratio:
            log_ratio = (
                jax.lax.stop_gradient(dialogues.response_log_probs(state.model, self.sampler)[0]) - ref_log_probs
            )
        critic_dialogues = self._critic_dialogues(batch.steps, batch.mask)
        critic, values, metrics = self.critic.update(
            state.critic, reference, critic_dialogues, log_ratio, batch.update_index, fold(key, "critic")
        )
        offline_batch = OfflineBatch(
            dialogues,
            ref_log_probs,
            values,
            batch.steps,
            state.dialogue_spec,
            reference,
            key,
            batch.update_index,
            critic,
        )

        def loss(model: Decoder) -> tuple[Array, dict[str, Array]]:
            total, loss_metrics = self.compute_loss(model, offline_batch)
            return jnp.where(batch.update_index < self.critic.num_critic_pretrain_updates, 0.0, total), {
                "policy_loss": total
            } | loss_metrics

        def learn() -> tuple[Decoder, PyTree, dict[str, Array], Array]:
            return trainable_gradient_step(self.make_optimizer(), loss, state.model, state.opt_state)

        def wait() -> tuple[Decoder, PyTree, dict[str, Array], Array]:
            _, _, *rest = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(learn))
            return state.model, state.opt_state, *rest

        if self.starts_after_critic:
            is_pretraining = batch.update_index < self.critic.num_critic_pretrain_updates
            model, opt_state, loss_metrics, grad_norm = jax.lax.cond(is_pretraining, wait, learn)
        else:
            model, opt_state, loss_metrics, grad_norm = learn()
        report = Report(metrics | loss_metrics | {"gradient": grad_norm})
        return LMOfflineState(model, opt_state, state.dialogue_spec, reference, critic), report

    def _critic_spec(self, spec: EnvSpec) -> DialogueSpec:
        """Limits of the dialogues as the critic reads them."""
        dialogue_spec, privileged = DialogueSpec.from_spec(spec), spec.privileged_space
        if not self.privileged_critic or not isinstance(privileged, Text):
            return dialogue_spec
        return dataclasses.replace(dialogue_spec, max_length=privileged.max_length)

    def _critic_dialogues(self, steps: Transition, mask: Bool[Array, "time row"]) -> Dialogues:
        """The dialogues as the critic reads them, with privileged information if ``privileged_critic`` is true."""
        return Dialogues.from_transitions(with_critic_observation(steps) if self.privileged_critic else steps, mask)
