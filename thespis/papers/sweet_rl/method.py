r"""SWEET-RL: turn-level preference learning with a critic that sees privileged training-time information.

First a critic learns turn-level advantages from pairs of whole dialogues at the same task, one of which returned more;
it sees the environment's privileged observation for critics. Then, at turns of the dataset, several candidate responses
are sampled and ranked by it; one of the better half is preferred to one of the worse half:

.. math:: -\log \sigma(\beta (h(a^+) - h(a^-))) - w \log \pi(a^+|o) / L,
          \qquad h(a) = \log \pi(a|o) - \log \pi_{ref}(a|o), \quad a \sim \pi_{ref}(\cdot|o)

The actor sees only the dialogue. Needs an environment with a privileged observation, such as ``text:questions-told``;
otherwise the critic knows no more than the actor.

Source: Zhou et al., 2025, and its code, from which beta, w and the rule of halves are taken; they sample 16.

Differs: candidates are sampled anew in every update, where theirs are sampled once; the turns are those of the pairs
that trained the critic. They draw four pairs of each turn's candidates (``num_pairs``), here it is one by default.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from thespis.actors.lm_policy import generate_responses
from thespis.core.records import Citation, Number
from thespis.data.feeds import PreferencePairs
from thespis.learners.language.dialogues import single_turn_dialogues, with_critic_observation
from thespis.learners.language.implicit_reward import ImplicitReward
from thespis.learners.language.lm_offline import LMOffline, OfflineBatch
from thespis.learners.language.preference_losses import PreferenceLoss, ResponseScores, SigmoidLoss
from thespis.learners.language.response_critics import TurnAdvantageCritic
from thespis.nets.decoder import Decoder
from thespis.objectives.statistics import masked_mean
from thespis.runtime.keys import fold


class SWEET(LMOffline):
    """SWEET-RL: DPO on candidate turns ranked by a critic with privileged information, for multi-turn dialogues."""

    critic: TurnAdvantageCritic = ImplicitReward()
    """Critic of turn-level advantages: ImplicitReward, with beta, num_critic_pretrain_updates and learning_rate; or
    another one, such as OffPolicyTurnCritic."""
    loss_type: PreferenceLoss = SigmoidLoss()
    """Preference loss: SigmoidLoss, IPOLoss or HingeLoss."""
    num_candidates: int = eqx.field(static=True, default=8)
    """Number of candidate responses ranked at each turn, 2 or more."""
    num_pairs: int = eqx.field(static=True, default=1)
    """Pairs that are drawn, with replacement, from the candidates of each turn: 1 or more."""
    nll_coef: Number = 0.01
    """Coefficient of the negative log-likelihood of the preferred response, per token."""
    feed: PreferencePairs = eqx.field(static=True, default=PreferencePairs())
    """Pairs of dialogues: batch_size, max_steps (turns; 0: as many as the longest dialogue has)."""

    uses_reference: ClassVar[bool] = True
    uses_returns: ClassVar[bool] = True
    starts_after_critic: ClassVar[bool] = True
    name: ClassVar[str] = "sweet-rl"
    citations: ClassVar[tuple[Citation, ...]] = (
        Citation(
            "SWEET-RL: Training Multi-Turn LLM Agents on Collaborative Reasoning Tasks",
            "Zhou et al.",
            2025,
            "arXiv:2503.15478",
        ),
    )
    details: ClassVar[tuple[str, ...]] = (
        "the critic is trained first and alone",
        "candidates are sampled anew in every update",
    )

    def compute_loss(self, model: Decoder, batch: OfflineBatch) -> tuple[Float[Array, ""], dict[str, Array]]:
        """Preference loss on one sampled turn of each dialogue, plus the likelihood term."""
        prompts, turn, rows = batch.sample_turn()
        alive = batch.dialogues.alive[turn, rows]
        responses, advantages = self.rank_candidates(batch, prompts, turn, rows)
        middle, last = self.num_candidates // 2, self.num_candidates - 1
        rows = jnp.tile(rows, self.num_pairs)
        prompts, alive = prompts[rows], alive[rows]
        key, count = fold(batch.key, "pair"), rows.shape
        low, high = jax.random.randint(key, (2, *count), jnp.array([[0], [middle]]), jnp.array([[middle], [last + 1]]))

        def evaluate_candidate(place: Int[Array, " row"]) -> tuple[ResponseScores, Float[Array, ""]]:
            dialogues = single_turn_dialogues(prompts, responses[rows, place], alive)
            log_prob, ref_log_prob = (
                dialogues.response_log_probs(source, self.sampler)[0] for source in (model, batch.reference)
            )
            likelihood = masked_mean(log_prob, dialogues.response_mask)
            return ResponseScores.from_dialogues(dialogues, log_prob, ref_log_prob), likelihood

        (better, likelihood), (worse, _) = evaluate_candidate(high), evaluate_candidate(low)
        metrics = {
            "accuracy": jnp.mean(better.log_ratio > worse.log_ratio, dtype="float32"),
            "merit_gap": jnp.mean(advantages[rows, high] - advantages[rows, low]),
        }
        return self.loss_type(better, worse).mean() - self.nll_coef * likelihood, metrics

    def rank_candidates(
        self, batch: OfflineBatch, prompts: Int[Array, "row length"], turn: Int[Array, " row"], rows: Int[Array, " row"]
    ) -> tuple[Int[Array, "row candidate token"], Float[Array, "row candidate"]]:
        """Candidate responses of the reference and their advantages, in ascending order."""
        num_candidates = self.num_candidates
        responses = generate_responses(
            batch.reference,
            self.sampler,
            batch.dialogue_spec,
            jnp.repeat(prompts, num_candidates, axis=0),
            fold(batch.key, "candidates"),
        )
        steps = with_critic_observation(batch.transitions) if self.privileged_critic else batch.transitions
        contexts = jnp.repeat(steps.view.observation[turn, rows], num_candidates, axis=0)
        alive = jnp.repeat(batch.dialogues.alive[turn, rows], num_candidates)
        turn_advantages = self.critic.turn_advantages(
            batch.critic, batch.reference, single_turn_dialogues(contexts, responses, alive)
        )
        advantages = turn_advantages[0].reshape(-1, num_candidates)
        order = jnp.argsort(advantages, axis=1)
        responses = responses.reshape(*advantages.shape, -1)
        return jnp.take_along_axis(responses, order[..., None], axis=1), jnp.take_along_axis(advantages, order, axis=1)
