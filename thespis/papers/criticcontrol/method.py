r"""CriticControl: decoding of a frozen language model guided by a learned token-level critic.

.. math:: p(a|s) \propto \pi(a|s) \frac{\sigma(V(s, a))}{\sigma(V(s))}

for likely tokens ``a``. The critic is a linear head on the frozen model. It is trained on unguided samples of the
model, by generalized advantage estimation over tokens, from a reward that needs no gradient and may be any number: the
log-odds of a classifier, so that its sigmoid is a probability. Evaluation and play are guided; ``guidance_scale=0`` is
the model itself.

Source: Kim et al., 2022; what is not in its abstract was read from the authors' code, not from the paper.

Differs: a text is also valued after its last token, where all of its reward is paid, since texts may end by themselves;
no clipping of values and no repetition penalty; tokens are sampled from normalized probabilities, where their code
takes the softmax of such probabilities once more (sentiment), or the most likely token (topics).
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.actors.lm_policy import DialogueSpec, LMPolicy, response_features
from thespis.core.contracts import Mode
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Number, Report, Transition
from thespis.data.feeds import Episodes
from thespis.language.generation import CriticLogitsProcessor
from thespis.language.sampling import TemperatureSampler
from thespis.learners.language.advantage_estimators import TokenAdvantages, TokenGAE, TurnBatch
from thespis.learners.language.dialogues import Dialogues
from thespis.learners.language.lm_agent import LMAgent, LMWithValueHead, add_value_head
from thespis.learners.optim.optimizers import LearningRate, gradient_step
from thespis.objectives.statistics import explained_variance, masked_mean
from thespis.runtime.keys import fold


class CriticControlState(eqx.Module):
    """Training state of CriticControl: frozen model with a trained value head, and optimizer state."""

    model: LMWithValueHead
    opt_state: PyTree
    dialogue_spec: DialogueSpec = eqx.field(static=True)


class CriticControl(LMAgent):
    """CriticControl: guides the decoding of a frozen language model by a critic learned with GAE."""

    advantage_estimator: TokenGAE = TokenGAE(0.95, 0.99)
    """Estimator of the critic's targets: GAE over tokens, with gae_lambda and discount."""
    guidance_scale: Number = 1.0
    """Exponent of the critic's ratio; 0: no guidance."""
    guidance_top_k: int = eqx.field(static=True, default=10)
    """Number of most likely tokens that are reweighted; other tokens keep their probability."""
    training_temperature: Number = 1.0
    """Factor on ``temperature`` for the texts from which the critic learns, above 0."""
    learning_rate: LearningRate = 3e-2
    """Learning rate of the critic."""
    num_critic_updates: int = eqx.field(static=True, default=8)
    """Gradient steps of the critic on each batch."""
    num_players: int = eqx.field(static=True, default=1)
    """Number of players that the model plays."""
    feed: Episodes = eqx.field(static=True, default=Episodes(num_envs=64))
    """Dialogues: num_envs, max_steps (turns; 0: the environment's limit)."""

    name: ClassVar[str] = "critic-control"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("Critic-Guided Decoding for Controlled Text Generation", "Kim et al.", 2022, "arXiv:2212.10938"),
    )
    details: ClassVar[tuple[str, ...]] = ("the language model is frozen", "no guidance in training rollouts")

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> CriticControlState:
        """Load ``model`` and add a value head with output 0. Raises ``UserError`` for an environment without text."""
        dialogue_spec = dataclasses.replace(DialogueSpec.from_spec(spec), num_players=self.num_players)
        model = self.model_init.init_from(spec, fold(key, "model"))
        network = add_value_head(model, model.config.hidden_size)
        return CriticControlState(
            network, self.make_optimizer().init((network.value_weight, network.value_bias)), dialogue_spec
        )

    def policy(self, state: CriticControlState, mode: Mode) -> LMPolicy:
        """The language model; with guidance except in explore mode, where the critic's training data are sampled."""
        network = state.model
        if mode is Mode.EXPLORE:
            sampler = TemperatureSampler(jnp.asarray(self.temperature * self.training_temperature, "float32"))
            return LMPolicy(network.model, sampler, state.dialogue_spec, mode)
        lm_policy = LMPolicy(network.model, self.sampler, state.dialogue_spec, mode)
        guidance_scale = jnp.asarray(self.guidance_scale, "float32")
        return dataclasses.replace(
            lm_policy,
            logits_processor=CriticLogitsProcessor(
                network.value_weight, network.value_bias, guidance_scale, self.guidance_top_k
            ),
        )

    def judge(self, state: CriticControlState, episode: Transition) -> Critique:
        """The critic's values and advantages before each response."""
        steps = jax.tree.map(lambda x: x[:, None], episode)
        dialogues = Dialogues.from_transitions(steps, jnp.ones(steps.reward.shape, bool))
        evaluation, _ = self.evaluate_tokens(state.model, dialogues)
        return Critique(value=evaluation.value[:, 0, 0], advantage=evaluation.advantage[:, 0, 0])

    def update(self, state: CriticControlState, batch: Batch, key: Key[Array, ""]) -> tuple[CriticControlState, Report]:
        """Gradient steps of the critic on targets that are fixed for the batch."""
        evaluation, features = self.evaluate_tokens(state.model, Dialogues.from_transitions(batch.steps, batch.mask))
        optimizer, network = self.make_optimizer(), state.model

        def critic_loss(head: tuple[Array, Array]) -> tuple[Array, Array]:
            value = LMWithValueHead(network.model, *head).value(features)
            loss = masked_mean(jnp.square(value - evaluation.target), evaluation.value_mask)
            return loss, loss

        def step(carry: Any, _: None) -> Any:
            head, opt, loss, norm = gradient_step(optimizer, critic_loss, *carry)
            return (head, opt), {"critic_loss": loss, "gradient": norm}

        (head, opt), metrics = jax.lax.scan(
            step, ((network.value_weight, network.value_bias), state.opt_state), None, self.num_critic_updates
        )
        metrics = jax.tree.map(jnp.mean, metrics)
        metrics["explained_variance"] = explained_variance(evaluation.value, evaluation.target, evaluation.value_mask)
        return CriticControlState(LMWithValueHead(network.model, *head), opt, state.dialogue_spec), Report(metrics)

    def evaluate_tokens(
        self, model: LMWithValueHead, dialogues: Dialogues
    ) -> tuple[TokenAdvantages, Float[Array, "time row place features"]]:
        """Values and targets before each token and after the last, and the features that values are computed from."""
        width = dialogues.responses.shape[-1] + 1
        features = response_features(model.model, dialogues.transcript, dialogues.response_starts, width)
        value_mask = dialogues.alive[..., None] & (
            jnp.arange(width) <= dialogues.response_mask.sum(axis=-1, keepdims=True)
        )
        turns = TurnBatch(dialogues.reward, dialogues.alive, dialogues.truncated, value_mask, 1)
        return self.advantage_estimator(turns, model.value(features)), features[:-1]
