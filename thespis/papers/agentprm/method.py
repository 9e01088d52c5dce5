r"""AgentPRM: iterations of rollouts, a process reward model of their outcomes, and online DPO on its scores.

In each iteration the policy is rolled out, several times from every initial state. A process reward model learns the
mean outcome of all rollouts that gave a response in a state, and the policy learns from pairs of new responses at the
states of the rollouts, of which the model prefers one:

.. math:: \hat Q(s, a) = \frac{1}{|G(s, a)|} \sum_{\tau \in G(s, a)} \sum_{k \ge t} \gamma^{k - t} r_k, \qquad
          -\log \sigma\big(\beta h(a^+) - \beta h(a^-)\big), \qquad h(a) = \log \pi(a|s) - \log \pi_{i-1}(a|s)

:math:`\pi_{i-1}` is the policy that was rolled out. Only rollouts are interaction.

Source: Choudhury, 2025, and its code (Llama 3.2 3B), from which the discount, beta and two responses per state are
taken. As there, the process reward model and the optimizers begin anew in each iteration.

Differs: the process reward model begins as the initial policy; failures count 0 and the discount counts turns from the
response on, where the code counts failures as -1 before it discounts, and turns from the start; a pair of state and
response counts as often as it occurred.
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from thespis.actors.lm_policy import DialogueSpec, LMPolicy, generate_responses
from thespis.core.contracts import Mode
from thespis.core.records import Batch, Citation, Critique, EnvSpec, Number, Report, Transition
from thespis.data.feeds import Episodes
from thespis.feedback.process_reward import monte_carlo_targets, process_reward_loss
from thespis.learners.language.dialogues import Dialogues, random_prompts, single_turn_dialogues
from thespis.learners.language.lm_agent import (
    LMWithValueHead,
    TrainableLMAgent,
    add_value_head,
    init_opt_state,
    trainable_gradient_step,
)
from thespis.learners.language.preference_losses import PreferenceLoss, ResponseScores, SigmoidLoss, order_pairs
from thespis.learners.language.turn_scores import turn_scores
from thespis.learners.optim.optimizers import Adam, gradient_step
from thespis.methods.language.rm import BestOfN
from thespis.nets.decoder import Decoder
from thespis.runs.ranges import AT_LEAST_1, in_range
from thespis.runtime.keys import fold


class AgentPRMState(eqx.Module):
    """Training state: the policy, the initial policy, and the latest process reward model."""

    model: Decoder
    initial_model: Decoder
    process_model: LMWithValueHead
    dialogue_spec: DialogueSpec = eqx.field(static=True)


class AgentPRM(TrainableLMAgent):
    """AgentPRM: online DPO on the scores of a process reward model, in few iterations of many rollouts."""

    loss_type: PreferenceLoss = SigmoidLoss(0.03)
    """Preference loss: SigmoidLoss (DPO), IPOLoss or HingeLoss."""
    discount: Number = 0.95
    """Discount per turn of the outcomes, in [0, 1]."""
    max_return: Number = 1.0
    """Largest possible return, above 0: success is the return as a share of it."""
    num_model_steps: int = eqx.field(static=True, default=200)
    """Gradient steps of the process reward model in each iteration."""
    model_batch_size: int = eqx.field(static=True, default=64)
    """Dialogues per gradient step of the process reward model."""
    model_learning_rate: Number = 1e-3
    """Step size of the process reward model."""
    num_policy_steps: int = eqx.field(static=True, default=100)
    """Gradient steps of the policy in each iteration."""
    policy_batch_size: int = eqx.field(static=True, default=64)
    """Pairs of new responses per gradient step of the policy."""
    num_candidates: int = eqx.field(static=True, default=1, metadata=in_range(AT_LEAST_1))
    """Responses of which sampled play says the one that the process reward model scores best (best-of-n)."""
    feed: Episodes = eqx.field(static=True, default=Episodes(group_size=16, num_envs=512))
    """Feed of dialogues: num_envs (rollouts of an iteration), group_size (of equal initial states), max_steps."""

    name: ClassVar[str] = "agent-prm"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "Process Reward Models for LLM Agents: Practical Framework and Directions",
            "Choudhury",
            2025,
            "arXiv:2502.10325",
        ),
    )
    details: ClassVar[tuple[str, ...]] = ("the model and both optimizers begin anew in each iteration",)

    @property
    def model_optimizer(self) -> Adam:
        """Optimizer of the process reward model: Adam with gradients clipped to norm 1."""
        return Adam(self.model_learning_rate, 1.0)

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> AgentPRMState:
        """The policy that ``model`` names. Raises ``UserError`` for an environment without text."""
        dialogue_spec, model = DialogueSpec.from_spec(spec), self.init_from(spec, key)
        initial_model, scorer_model = jax.tree.map(jnp.copy, model), jax.tree.map(jnp.copy, model)
        return AgentPRMState(
            model, initial_model, add_value_head(scorer_model, model.config.hidden_size), dialogue_spec
        )

    def policy(self, state: AgentPRMState, mode: Mode) -> LMPolicy | BestOfN:
        """The decoder as policy; in sampled play with several candidates, its best response by the process model."""
        actor = LMPolicy(state.model, self.sampler, state.dialogue_spec, mode)
        if mode is not Mode.SAMPLE or self.num_candidates == 1:
            return actor
        return BestOfN(actor, jax.tree.map(lambda x: x[None], state.process_model), self.num_candidates)

    def judge(self, state: AgentPRMState, episode: Transition) -> Critique:
        """No critique: the process reward model scores responses, and has no values of states."""
        return Critique()

    def update(self, state: AgentPRMState, batch: Batch, key: Key[Array, ""]) -> tuple[AgentPRMState, Report]:
        """One iteration: the process reward model learns from the dialogues, and the policy from its scores."""
        dialogues = Dialogues.from_transitions(batch.steps, batch.mask)
        process_model, model_loss = self.fit_process_model(state.initial_model, dialogues, fold(key, "model"))
        model, metrics = self.improve_policy(
            state.model, process_model, dialogues, state.dialogue_spec, fold(key, "policy")
        )
        metrics |= {"process_loss": model_loss, "turns": dialogues.alive.sum(axis=0).mean(dtype="float32")}
        return AgentPRMState(model, state.initial_model, process_model, state.dialogue_spec), Report(metrics)

    def fit_process_model(
        self, initial_model: Decoder, dialogues: Dialogues, key: Key[Array, ""]
    ) -> tuple[LMWithValueHead, Float[Array, ""]]:
        """A process reward model of the dialogues, with a head that begins with zeros, and its mean loss."""
        process_model = add_value_head(initial_model, initial_model.config.hidden_size)
        targets, rows = monte_carlo_targets(dialogues, self.discount, self.max_return), dialogues.alive.shape[1]

        def step(carry: Any, tick: Array) -> Any:
            chosen = jax.random.randint(fold(key, "rows", tick), (self.model_batch_size,), 0, rows)
            taken, taken_targets = dialogues.take_rows(chosen), targets[:, chosen]
            process_model, opt_state, loss, _ = gradient_step(
                self.model_optimizer,
                lambda process_model: process_reward_loss(process_model, taken, taken_targets),
                *carry,
            )
            return (process_model, opt_state), loss

        carry = process_model, self.model_optimizer.init(process_model)
        (process_model, _), losses = jax.lax.scan(step, carry, jnp.arange(self.num_model_steps))
        return process_model, losses.mean()

    def improve_policy(
        self,
        reference: Decoder,
        process_model: LMWithValueHead,
        dialogues: Dialogues,
        dialogue_spec: DialogueSpec,
        key: Key[Array, ""],
    ) -> tuple[Decoder, dict[str, Array]]:
        """The policy after online DPO at states of the dialogues, from the reference on, and metrics."""
        optimizer, count = self.make_optimizer(), self.policy_batch_size

        def step(carry: tuple[Decoder, PyTree], tick: Array) -> Any:
            prompts = random_prompts(dialogues, count, fold(key, "states", tick))
            responses = generate_responses(
                carry[0], self.sampler, dialogue_spec, jnp.tile(prompts, (2, 1)), fold(key, "responses", tick)
            )
            pairs = single_turn_dialogues(jnp.tile(prompts, (2, 1)), responses, jnp.ones(2 * count, bool))
            scores = turn_scores(process_model, pairs)[0].reshape(2, count)
            first_is_better = scores[0] >= scores[1]
            ref_log_probs = pairs.response_log_probs(reference, self.sampler)[0]

            def loss_fn(model: Decoder) -> tuple[Float[Array, ""], dict[str, Array]]:
                log_probs = pairs.response_log_probs(model, self.sampler)[0]
                sides = ResponseScores.from_dialogues(pairs, log_probs, jax.lax.stop_gradient(ref_log_probs))
                first, second = jax.tree.map(lambda x: x[:count], sides), jax.tree.map(lambda x: x[count:], sides)
                loss = self.loss_type(*order_pairs(first, second, first_is_better)).mean()
                return loss, {
                    "policy_loss": loss,
                    "score_margin": jnp.abs(scores[0] - scores[1]).mean(),
                    "score": scores.mean(),
                }

            model, opt_state, metrics, grad_norm = trainable_gradient_step(optimizer, loss_fn, *carry)
            return (model, opt_state), metrics | {"gradient": grad_norm}

        carry = reference, init_opt_state(optimizer, reference)
        (model, _), metrics = jax.lax.scan(step, carry, jnp.arange(self.num_policy_steps))
        return model, jax.tree.map(jnp.mean, metrics)
