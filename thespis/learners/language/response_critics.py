"""Critics of dialogues, learned beside a language model from the dialogues that it acts in, or from logged ones.

:class:`ResponseCritic` is the slot, and two abstract classes say what a method may use of a critic: the values before
each token, or how much better a response is than expected. Values are ``[turns, row, token]``, before each token and
after the last turn. A critic of turns or of whole dialogues gives all tokens of a turn or dialogue the same value.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.actors.lm_policy import DialogueSpec, response_features
from thespis.core.records import Number
from thespis.learners.language.dialogues import Dialogues, sum_from_token
from thespis.learners.language.lm_agent import LMWithValueHead, add_value_head
from thespis.learners.optim.optimizers import Adam, gradient_step
from thespis.nets.decoder import Decoder
from thespis.objectives.statistics import masked_mean

TokenValues = Float[Array, "turns row token"]
CriticUpdate = tuple[PyTree, Any, dict[str, Float[Array, ""]]]
"""The critic's state, its values (``()`` if it has none), and metrics."""


class ResponseCritic(eqx.Module):
    """Slot: a critic of dialogues, with a state of its own."""

    needs_pairs: ClassVar[bool] = False
    """Whether it learns from pairs of dialogues, even rows the better and odd rows the worse ones."""

    @property
    @abc.abstractmethod
    def num_critic_pretrain_updates(self) -> int:
        """Updates in which the critic learns alone; after them it is frozen. 0: it always learns.

        A field with a default, or a class variable.
        """

    needs_log_ratio: eqx.AbstractClassVar[bool]
    """Whether ``update`` uses the log-ratio of model and reference."""

    @abc.abstractmethod
    def init_from(self, model: Decoder, dialogue_spec: DialogueSpec, key: Key[Array, ""]) -> PyTree:
        """The initial state, a tree of arrays, made from the initial model; ``()`` if there is none."""

    @abc.abstractmethod
    def values(self, critic: PyTree, reference: PyTree, dialogues: Dialogues) -> TokenValues | None:
        """Values of the dialogues; ``None`` for a critic that has none."""

    @abc.abstractmethod
    def update(
        self,
        critic: PyTree,
        reference: PyTree,
        dialogues: Dialogues,
        log_ratio: Any,
        update_index: Int[Array, ""],
        key: Key[Array, ""],
    ) -> CriticUpdate:
        """One update of the critic: its new state, values of the dialogues (``()`` if it has none), and metrics."""


class StateValueCritic(ResponseCritic):
    """Slot: a critic of dialogues that has values before each token."""

    @abc.abstractmethod
    def values(self, critic: PyTree, reference: PyTree, dialogues: Dialogues) -> TokenValues:
        """Values of the dialogues."""


class PathConsistencyCritic(StateValueCritic):
    """Slot: a critic of values that include a KL penalty from there on, for methods that fit a policy to them."""

    beta: eqx.AbstractVar[Number]
    """Weight of the KL from the reference, above 0."""

    @property
    @abc.abstractmethod
    def turn_level(self) -> bool:
        """Whether a step is a turn; else it is a token. A field."""

    def step_mask(self, dialogues: Dialogues) -> Bool[Array, "time row token"]:
        """Tokens at which a step begins."""
        return (
            dialogues.response_mask & (jnp.arange(dialogues.response_mask.shape[-1]) == 0)
            if self.turn_level
            else dialogues.response_mask
        )


class TurnAdvantageCritic(ResponseCritic):
    """Slot: a critic of dialogues that says how much better a response is than what is expected before it."""

    @abc.abstractmethod
    def turn_advantages(self, critic: PyTree, reference: PyTree, dialogues: Dialogues) -> Float[Array, "time row"]:
        """Advantage of each response, by what is said up to its end: nothing after it is read."""


class NoCritic(ResponseCritic):
    """Empty response critic, for methods without a critic."""

    num_critic_pretrain_updates: ClassVar[int] = 0
    """Updates in which the critic learns alone; after them it is frozen. 0: it always learns."""
    needs_log_ratio: ClassVar[bool] = False
    """Whether ``update`` uses the log-ratio of model and reference."""

    def init_from(self, model: Decoder, dialogue_spec: DialogueSpec, key: Key[Array, ""]) -> PyTree:
        """An empty state: nothing has to be kept."""
        return ()

    def values(self, critic: PyTree, reference: PyTree, dialogues: Dialogues) -> None:
        """Values of the dialogues: none, as there is no critic."""

    def update(
        self,
        critic: PyTree,
        reference: PyTree,
        dialogues: Dialogues,
        log_ratio: Any,
        update_index: Int[Array, ""],
        key: Key[Array, ""],
    ) -> CriticUpdate:
        """Return the state unchanged: nothing is learned."""
        return (), (), {}


class ReferenceCritic(StateValueCritic):
    """Critic on the reference: predicts a dialogue's return before its first response (Baheti et al. 2023).

    It is a linear head on the reference. Differs from the paper: its head is attention with a small network.
    """

    num_critic_pretrain_updates: int = eqx.field(static=True, default=300)
    """Updates in which the critic learns alone; after them it is frozen."""
    learning_rate: Number = 1e-2
    """Step size of the head."""
    needs_log_ratio: ClassVar[bool] = False

    def init_from(self, model: Decoder, dialogue_spec: DialogueSpec, key: Key[Array, ""]) -> PyTree:
        """A head that predicts 0, and its optimizer state."""
        head = jnp.zeros(model.config.hidden_size), jnp.zeros(())
        return head, Adam(self.learning_rate, 1.0).init(head)

    def values(self, critic: PyTree, reference: PyTree, dialogues: Dialogues) -> TokenValues:
        """The predicted return, the same for all tokens of a dialogue."""
        features = response_features(reference, dialogues.transcript, dialogues.response_starts[:1], 1)
        value = LMWithValueHead(reference, *critic[0]).value(jax.lax.stop_gradient(features))
        return jnp.broadcast_to(value, (*dialogues.response_starts.shape, dialogues.responses.shape[-1]))

    def update(
        self,
        critic: PyTree,
        reference: PyTree,
        dialogues: Dialogues,
        log_ratio: Any,
        update_index: Int[Array, ""],
        key: Key[Array, ""],
    ) -> CriticUpdate:
        """One step on the squared error to the returns."""

        def loss_fn(head: PyTree) -> tuple[Array, TokenValues]:
            values = self.values((head, ()), reference, dialogues)
            return jnp.mean(jnp.square(values[0, :, 0] - dialogues.returns)), values

        return _critic_step(self, critic, loss_fn, update_index)


class SuccessCritic(StateValueCritic):
    """Success critic: predicts success before each turn, as a logit (Liu et al. 2024, DAPO).

    It is a separate decoder with a linear head. Where a reward is more than a single 1 at the end, success is the share
    of ``max_return`` earned from there on.
    """

    max_return: Number = 1.0
    """Largest possible return, above 0."""
    num_critic_pretrain_updates: int = eqx.field(static=True, default=300)
    """Updates in which the critic learns alone; after them it is frozen."""
    learning_rate: Number = 1e-3
    """Step size of the critic."""
    needs_log_ratio: ClassVar[bool] = False

    def init_from(self, model: Decoder, dialogue_spec: DialogueSpec, key: Key[Array, ""]) -> PyTree:
        """A copy of the model with a value head, and its optimizer state."""
        return _init_value_model(model, self.learning_rate)

    def values(self, critic: PyTree, reference: PyTree, dialogues: Dialogues) -> TokenValues:
        """Expected return to go, the same for all tokens of a turn; 0 after the end of a dialogue."""
        return _broadcast_turn_values(self.max_return * jax.nn.sigmoid(_token_values(critic[0], dialogues)), dialogues)

    def update(
        self,
        critic: PyTree,
        reference: PyTree,
        dialogues: Dialogues,
        log_ratio: Any,
        update_index: Int[Array, ""],
        key: Key[Array, ""],
    ) -> CriticUpdate:
        """One step on the cross-entropy to rewards to go, as shares of ``max_return`` in [0, 1]."""

        def loss_fn(mind: LMWithValueHead) -> tuple[Array, TokenValues]:
            logit = _token_values(mind, dialogues)
            success = jnp.clip(dialogues.rewards_to_go / self.max_return, 0.0, 1.0)
            entropy = -success * jax.nn.log_sigmoid(logit[:-1, :, 0]) - (1 - success) * jax.nn.log_sigmoid(
                -logit[:-1, :, 0]
            )
            return masked_mean(entropy, dialogues.alive), self.values((mind, ()), reference, dialogues)

        return _critic_step(self, critic, loss_fn, update_index)


class SoftValueCritic(PathConsistencyCritic):
    """Soft-value critic: predicts rewards to go minus the KL to come (Wang et al. 2024, OREO).

    It is a separate decoder with a linear head.
    """

    beta: Number = 0.03
    """Weight of the KL from the reference, above 0."""
    turn_level: bool = eqx.field(static=True, default=False)
    """Whether a step is a turn; else it is a token."""
    learning_rate: Number = 3e-4
    """Step size of the critic."""
    num_critic_pretrain_updates: ClassVar[int] = 0
    needs_log_ratio: ClassVar[bool] = True

    def init_from(self, model: Decoder, dialogue_spec: DialogueSpec, key: Key[Array, ""]) -> PyTree:
        """A copy of the model with a value head, and its optimizer state."""
        return _init_value_model(model, self.learning_rate)

    def values(self, critic: PyTree, reference: PyTree, dialogues: Dialogues) -> TokenValues:
        """Values before each token, or before each turn."""
        values = _token_values(critic[0], dialogues)
        return _broadcast_turn_values(values, dialogues) if self.turn_level else values

    def update(
        self,
        critic: PyTree,
        reference: PyTree,
        dialogues: Dialogues,
        log_ratio: Any,
        update_index: Int[Array, ""],
        key: Key[Array, ""],
    ) -> CriticUpdate:
        """One step on the squared error to rewards to go minus ``beta`` times the log-ratio from there on."""
        target = dialogues.rewards_to_go[..., None] - self.beta * sum_from_token(log_ratio, dialogues.response_mask)

        def loss_fn(mind: LMWithValueHead) -> tuple[Array, TokenValues]:
            values = self.values((mind, ()), reference, dialogues)
            return masked_mean(jnp.square(values[:-1] - target), self.step_mask(dialogues)), values

        return _critic_step(self, critic, loss_fn, update_index)


def _init_value_model(model: Decoder, learning_rate: Number) -> PyTree:
    """A copy of the model with a value head, and its optimizer state."""
    value_model = add_value_head(jax.tree.map(jnp.copy, model), model.config.hidden_size)
    return value_model, Adam(learning_rate, 1.0).init(value_model)


def _token_values(model: LMWithValueHead, dialogues: Dialogues) -> TokenValues:
    """Values before each token and after the last turn."""
    return model.value(
        response_features(model.model, dialogues.transcript, dialogues.response_starts, dialogues.responses.shape[-1])
    )


def _broadcast_turn_values(values: TokenValues, dialogues: Dialogues) -> TokenValues:
    """The value at a turn's first token for all of its tokens; 0 after the end of the dialogue."""
    alive = jnp.concatenate([dialogues.alive, jnp.zeros_like(dialogues.alive[:1])])
    return jnp.broadcast_to(jnp.where(alive, values[..., 0], 0.0)[..., None], values.shape)


def _critic_step(
    config: Any,
    critic: PyTree,
    loss_fn: Callable[[PyTree], tuple[Array, TokenValues]],
    update_index: Int[Array, ""],
) -> CriticUpdate:
    """One gradient step, unless the critic is frozen by now; the values are those before the step.

    ``config``: a critic with a setting ``learning_rate``.
    """

    def loss_and_values(judge: PyTree) -> tuple[Array, tuple[Array, TokenValues]]:
        loss, values = loss_fn(judge)
        return loss, (loss, values)

    model, opt, (loss, values), _ = gradient_step(Adam(config.learning_rate, 1.0), loss_and_values, *critic)
    if config.num_critic_pretrain_updates:
        model, opt = jax.tree.map(
            lambda new, old: jnp.where(update_index < config.num_critic_pretrain_updates, new, old),
            (model, opt),
            critic,
        )
    return (model, opt), jax.lax.stop_gradient(values), {"critic_loss": loss}
