"""Retroformer: a frozen actor, and a reflector that is trained by policy gradient on the gain of the next attempt."""

from __future__ import annotations

from thespis.core.records import Citation
from thespis.evidence.benches.second_tries import (
    BENCH,
    BEST_HINTS_ARM,
    BLIND_RETRY_ARM,
    FEED,
    FROZEN_ARM,
    MODEL,
    RANDOM_HINTS_ARM,
    SUCCESS,
    TRAINED,
    with_reflector,
)
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.learners.language.advantage_estimators import NoBaseline, TrajectoryReturn
from thespis.learners.language.policy_losses import TokenMean
from thespis.learners.language.revisions import RejectionSampling
from thespis.methods.language.reinforce import REINFORCE

_IMITATION = REINFORCE(
    **MODEL,
    feed=FEED,
    learning_rate=1e-3,
    advantage_estimator=TrajectoryReturn(NoBaseline()),
    loss_reduction=TokenMean(),
    rollout_transform=RejectionSampling(),
    num_epochs=2,
)
"""Maximum likelihood of the own reflections after which the second try succeeded."""
_RETROFORMER, _FROZEN, _RANDOM, _BLIND = "Retroformer", FROZEN_ARM.name, RANDOM_HINTS_ARM.name, BLIND_RETRY_ARM.name
_WORKED = "imitation of what worked"

PAPER = Paper(
    id="retroformer",
    name="Retroformer",
    citation=Citation(
        "Retroformer: Retrospective Large Language Agents with Policy Gradient Optimization",
        "Yao et al.",
        2023,
        "arXiv:2308.02151",
    ),
    family="llm-agent-rl",
    summary="The actor is frozen. A second model reads its failed attempt and writes a reflection, which the actor has "
    "in its prompt when it tries again; this model is trained by policy gradient on how much better the next attempt "
    "is.",
    claim="Agents whose reflections are trained on the environment's reward improve over tries, and succeed more often "
    "than those whose reflections are by a frozen model (Reflexion).",
    parts=(
        "thespis.envs.text.retry:RetryConversation",
        "thespis.learners.multi_agent.cast:Cast",
        "thespis.learners.language.frozen_model:FrozenModel",
        "thespis.methods.language.ppo_lm:LanguagePPO",
    ),
    command="thespis train ppo-lm --env text:hidden-rule --steps 20000 --model tiny --set num_layers=1 hidden_size=32",
    miniature=BENCH.trial(
        arms=(
            Arm(_RETROFORMER, with_reflector(TRAINED)),
            FROZEN_ARM,
            RANDOM_HINTS_ARM,
            BLIND_RETRY_ARM,
            BEST_HINTS_ARM,
            Arm(_WORKED, with_reflector(_IMITATION)),
        ),
        headline=Comparison(_RETROFORMER, _FROZEN, SUCCESS),
        mechanisms=(
            Comparison(_RETROFORMER, _RANDOM, SUCCESS),
            Comparison(_RETROFORMER, _BLIND, SUCCESS),
        ),
        context=(
            Comparison(_FROZEN, _BLIND, SUCCESS),
            Comparison(_RETROFORMER, _WORKED, SUCCESS),
            Comparison(BEST_HINTS_ARM.name, _RETROFORMER, SUCCESS),
            NotApplicable(
                "success in HotPotQA, AlfWorld and WebShop", "a frozen model of GPT's size that can be prompted"
            ),
        ),
    ),
    remarks="A hidden rule picks one of three digits; the frozen actor names one, and after a wrong answer the "
    "reflector reads whether the right one is larger or smaller, and hints at a rule. All arms have the same actor, "
    "which nearly always does as it is told, and 6,400 episodes where they learn. What was found: the frozen "
    "reflector, which was pretrained on hints of who knows the rule and on three tenths of random ones, is right in "
    "63% of the second tries, the trained one in 86%, and the best hints that can be known, by Bayes' rule, in 85%: "
    "it has learned all that there is to learn. Random hints and a blind retry come to 42% and 44%. What speaks "
    "against it: nothing here is particular to policy gradient. Maximum likelihood of the own reflections that worked "
    "is as good (85%; undecided), also on tuning seeds with a third of the learning rate (0.857), where PPO has "
    "0.781. On tuning seeds policy gradient whose baseline is the mean of eight episodes with the same task, which "
    "failed in other ways, was as good too (0.860): with one digit and one word of reflection the noise of such a "
    "baseline does no harm. PPO is not safe with this learning rate: of 22 trainings on tuning seeds two ended at "
    "0.44 and 0.64, none of the ten here. The lead over the frozen reflector, of 20 standard deviations of seeds, is "
    "as large as the share of random hints in its pretraining makes it: with half of them random it had 0.545. The "
    "frozen reflector is the same model for all seeds, so its spread is that of the thousand episodes alone. With "
    "rewards of 0 and 1 the gain of the second try is its reward, so that this trial says nothing of the difference "
    "that the paper subtracts. The reward model of the authors is left out, as the gain itself is known at once. Of "
    "the paper the abstract, the introduction and the authors' code could be read, not the tables.",
    fidelity=(
        Fidelity(
            "actor", "frozen (GPT)", "frozen: a decoder of two layers and 64 units that has learned to obey hints"
        ),
        Fidelity(
            "reflector", "a local model with adapters (LoRA)", "a decoder of the same size, of which all is trained"
        ),
        Fidelity("input of the reflector", "the failed attempt and its reward, as text"),
        Fidelity(
            "reward of a reflection",
            "the return of the next attempt minus that of the last one",
            "the same: here 0 or 1, as only failed attempts are reflected on",
        ),
        Fidelity(
            "reward model",
            "a classifier of reflections learned from such rewards (the authors' code: of those above 0.25), less a "
            "constant, is what PPO maximizes",
            "none: PPO sees the gain of the second try itself",
        ),
        Fidelity(
            "before PPO",
            "supervised fine-tuning on reflections that helped",
            "on demonstrations, of which three tenths are random hints",
        ),
        Fidelity("data", "reflections of a frozen model, collected once", "the reflector's own, collected anew"),
        Fidelity("optimizer", "PPO of TRL with a penalty on KL, 1e-5", "PPO with a penalty on KL of 0.01, 1e-3"),
        Fidelity("tries", "several, with all reflections in the prompt", "two"),
        Fidelity("tasks", "questions, rooms and shops in several steps", "one answer, and one hint of one word"),
    ),
)
