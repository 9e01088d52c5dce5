"""ArCHer: hierarchical RL of language models with an off-policy critic of turns and token-level REINFORCE.

Turns are steps of a Markov decision process whose values are learned off-policy from replay by temporal differences, so
that the final reward is predicted at the turns before it. Within a response, REINFORCE gives all tokens the same
advantage.

Source: Zhou et al., 2024; :mod:`thespis.learners.language.turn_critic` says what differs.

With ``num_replayed_turns`` the actor learns as in the authors' code: at turns of stored dialogues, where it draws
responses anew. Differs: responses are drawn once for all steps on a batch. Without it, the actor learns in one epoch
over the sampled dialogues.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from thespis.actors.lm_policy import generate_responses
from thespis.core.records import Batch, Citation, Report
from thespis.data.feeds import Episodes
from thespis.learners.language.advantage_estimators import AdvantageEstimator, NoBaseline, RewardToGo
from thespis.learners.language.dialogues import SampledDialogues, random_prompts, single_turn_dialogues
from thespis.learners.language.lm_policy_gradient import LMPolicyGradient, LMPolicyGradientState
from thespis.learners.language.policy_losses import FixedLength, LossReduction, PolicyGradient, PolicyLoss
from thespis.learners.language.response_critics import TurnAdvantageCritic
from thespis.learners.language.turn_critic import OffPolicyTurnCritic, TurnCriticState
from thespis.runtime.keys import fold


class ArCHer(LMPolicyGradient):
    """ArCHer: hierarchical RL with an off-policy turn critic and token-level REINFORCE, for multi-turn dialogues."""

    critic: TurnAdvantageCritic | None = OffPolicyTurnCritic()
    """Critic of turns: OffPolicyTurnCritic, which learns off-policy, or one of your own."""
    advantage_estimator: AdvantageEstimator = RewardToGo(NoBaseline(), 0.0)
    """Advantage estimator: RewardToGo or TrajectoryReturn (with a group baseline), TurnGAE or TokenGAE."""
    objective: PolicyLoss = PolicyGradient()
    """Policy loss of the tokens: PolicyGradient, ClippedSurrogate or NegativeAwareLoss."""
    loss_reduction: LossReduction = FixedLength()
    """Average of the token losses: FixedLength, TokenMean or SequenceMean."""
    feed: Episodes = eqx.field(static=True, default=Episodes(group_size=1, num_envs=64))
    """Feed of dialogues: num_envs, max_steps (turns; 0: the environment's). No dialogue is compared with others of its
    group, so that all of them may begin differently (group_size=1)."""

    num_replayed_turns: int = eqx.field(static=True, default=0)
    """Turns of stored dialogues at which the policy draws responses anew, for the actor's steps on a batch.

    A multiple of ``minibatch_size``; needs OffPolicyTurnCritic. 0: the actor learns from the newest dialogues. The
    authors take three steps on 256 turns.
    """

    name: ClassVar[str] = "archer"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation("ArCHer: Hierarchical Multi-Turn RL", "Zhou et al.", 2024, "arXiv:2402.19446"),
    )
    details: ClassVar[tuple[str, ...]] = ("twin critics of turns", "replay", "Polyak-averaged target critic")

    def __check_init__(self):
        """Raise ``ValueError`` if turns are replayed with another critic, or not in whole minibatches."""
        if self.num_replayed_turns % self.minibatch_size:
            raise ValueError(
                f"num_replayed_turns={self.num_replayed_turns} is no multiple of minibatch_size={self.minibatch_size}"
            )
        if self.num_replayed_turns and not isinstance(self.critic, OffPolicyTurnCritic):
            raise ValueError("num_replayed_turns needs critic=OffPolicyTurnCritic, whose buffer has the turns")

    def update(
        self, state: LMPolicyGradientState, batch: Batch, key: Key[Array, ""]
    ) -> tuple[LMPolicyGradientState, Report]:
        """The critic's update, then that of the actor, which stays as it is while OffPolicyTurnCritic warms up."""
        new_state, report = super().update(state, batch, key)
        if not isinstance(self.critic, OffPolicyTurnCritic):
            return new_state, report
        is_warm = new_state.critic.num_batches > self.critic.num_warmup_batches
        model, opt_state = jax.tree.map(
            lambda new, old: jnp.where(is_warm, new, old),
            (new_state.model, new_state.opt_state),
            (state.model, state.opt_state),
        )
        return dataclasses.replace(new_state, model=model, opt_state=opt_state), report

    def judge_turns(
        self, state: LMPolicyGradientState, dialogues: SampledDialogues, update_index: Array, key: Key[Array, ""]
    ) -> tuple[TurnCriticState, SampledDialogues, dict[str, Array]]:
        """The critic after an update, dialogues with its advantages as rewards, and its metrics.

        With ``num_replayed_turns`` these are dialogues of one turn: a replayed beginning and a new response.
        """
        if not isinstance(self.critic, OffPolicyTurnCritic):
            return super().judge_turns(state, dialogues, update_index, key)

        def log_probs(stored: SampledDialogues) -> Float[Array, "time row token"]:
            return stored.response_log_probs(state.model.model, self.sampler)[0]

        is_weighted = self.critic.max_importance_weight is not None
        critic, metrics = self.critic.learn(state.critic, dialogues, log_probs if is_weighted else None, key)
        if self.num_replayed_turns:
            dialogues = self.redraw(state, critic.replay, fold(key, "turns"))
        advantages = jax.lax.stop_gradient(self.critic.turn_advantages(critic, state.reference, dialogues))
        rewards = jnp.where(dialogues.alive, advantages, 0.0)
        return critic, dataclasses.replace(dialogues, reward=rewards), metrics

    def redraw(self, state: LMPolicyGradientState, replay: SampledDialogues, key: Key[Array, ""]) -> SampledDialogues:
        """Dialogues of one turn: what was said before a stored turn, and a response of today's policy."""
        model, prompts = state.model.model, random_prompts(replay, self.num_replayed_turns, fold(key, "turns"))
        responses = generate_responses(model, self.sampler, state.dialogue_spec, prompts, fold(key, "responses"))
        redrawn = single_turn_dialogues(prompts, responses, jnp.ones(len(prompts), bool))
        log_probs = redrawn.response_log_probs(model, self.sampler)[0]
        return SampledDialogues(**vars(redrawn), log_probs=jax.lax.stop_gradient(log_probs))
