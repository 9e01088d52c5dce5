"""StepAgent: from novice to expert, by step-wise reinforcement learning."""

from __future__ import annotations

import dataclasses

from thespis.core.records import Citation
from thespis.data.feeds import Episodes
from thespis.evidence.benches.errands import (
    BENCH,
    EXPERT_ERRANDS_ENV,
    IMITATION_ARM,
    MODEL,
    NUM_DEMONSTRATIONS,
    NUM_TURNS,
    RETURN,
    demonstrations,
    unseen_errands_return,
)
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.measures import final_return, learning_curve_auc
from thespis.evidence.paired_verdict import plan_looks
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.feedback.response_discriminator import ResponseDiscriminator
from thespis.learners.language.advantage_estimators import TurnGAE
from thespis.papers.stepagent.method import FineTunedPPO

_NUM_UPDATES, _NUM_DIALOGUES = 100, 64
_STEPS = _NUM_UPDATES * _NUM_DIALOGUES * NUM_TURNS
_OUTCOME = FineTunedPPO(
    **MODEL,
    expert_env=EXPERT_ERRANDS_ENV,
    num_demonstrations=NUM_DEMONSTRATIONS,
    learning_rate=3e-4,
    advantage_estimator=TurnGAE(),
    minibatch_size=32,
    feed=Episodes(max_steps=NUM_TURNS, num_envs=_NUM_DIALOGUES),
)
_PPO = dataclasses.replace(_OUTCOME, learning_rate=1e-3, vf_coef=0.02)
_DISCRIMINATOR = ResponseDiscriminator(
    **demonstrations(NUM_DEMONSTRATIONS), num_updates=1, learning_rate=3e-4, absorbing_state=True
)
_NO_RESPONSES = dataclasses.replace(_DISCRIMINATOR, learning_rate=1e-9)
"""A discriminator that tells experts from the policy in the absorbing state only."""
_RESPONSES_ALONE = dataclasses.replace(_DISCRIMINATOR, absorbing_state=False)

PAPER = Paper(
    id="stepagent",
    name="StepAgent",
    citation=Citation(
        "From Novice to Expert: LLM Agent Policy Optimization via Step-wise Reinforcement Learning",
        "Deng et al.",
        2024,
        "arXiv:2411.03817",
    ),
    family="llm-agent-rl",
    summary="Compares an agent's response at every step with that of an expert. Either the expert's response is "
    "preferred to the agent's own (implicit reward), or a discriminator learns to tell them apart and rewards PPO per "
    "step (inverse RL).",
    claim="Step-wise rewards, from comparing the agent with an expert, teach more than imitation and than PPO on the "
    "final reward.",
    parts=(
        "thespis.feedback.response_discriminator:ResponseDiscriminator",
        "thespis.papers.stepagent.method:FineTunedPPO",
        "thespis.methods.language.spin:SPIN",
    ),
    command="thespis train thespis.papers.stepagent.method:FineTunedPPO --env thespis.evidence.benches.errands:ERRANDS "
    "--model tiny --steps 57600 --feedback response-discriminator --set advantage_estimator=TurnGAE num_layers=1 "
    "hidden_size=32 num_pretrain_steps=2000 learning_rate=1e-3 vf_coef=0.02 "
    "expert_env=thespis.evidence.benches.errands:EXPERT_ERRANDS feedback.absorbing_state=true "
    "feedback.learning_rate=3e-4 feedback.num_updates=1 "
    "feedback.data=demonstrations:16:thespis.evidence.benches.errands:EXPERT_ERRANDS",
    miniature=BENCH.trial(
        arms=(
            Arm("StepAgent-Inverse", _PPO, {"feedback": _DISCRIMINATOR}, steps=_STEPS),
            IMITATION_ARM,
            Arm("PPO on the outcome", _OUTCOME, steps=_STEPS),
            Arm("absorbing state alone", _PPO, {"feedback": _NO_RESPONSES}, steps=_STEPS),
            Arm("responses alone", _PPO, {"feedback": _RESPONSES_ALONE}, steps=_STEPS),
        ),
        looks=plan_looks((10,)),
        headline=Comparison("StepAgent-Inverse", "imitation", RETURN),
        mechanisms=(
            Comparison("StepAgent-Inverse", "PPO on the outcome", RETURN),
            Comparison("StepAgent-Inverse", "absorbing state alone", RETURN),
            Comparison("responses alone", "imitation", RETURN),
        ),
        context=(
            Comparison("StepAgent-Inverse", "PPO on the outcome", learning_curve_auc()),
            Comparison("StepAgent-Inverse", "absorbing state alone", learning_curve_auc()),
            Comparison("StepAgent-Inverse", "imitation", unseen_errands_return()),
            Comparison("StepAgent-Inverse", "imitation", final_return("sampled")),
            NotApplicable("better than prompted and other tuned agents of 7B and 8B", "such models"),
        ),
    ),
    remarks="Errands among five places replace shopping, household and question-answering tasks: a thing has to be "
    "found and brought to another place, in at most nine commands. A one-layer decoder, pretrained on a demonstrator "
    "that is random in 60% of its commands, replaces a model of 7B or 8B. All arms learn from, or begin with imitation "
    "of, the same sixteen dialogues of an expert; only PPO on the outcome is rewarded by the environment. Of the two "
    "variants the inverse one was chosen before the trial. On seeds 1,100 to 1,103, by the greedy return: imitation "
    "0.353, the implicit variant (SPIN's loss at one turn of each dialogue, 300 updates after 300 of fine-tuning, a "
    "learning rate of 3e-4 and a beta of 1) 0.352. The inverse variant, with the step sizes of PPO and of the "
    "discriminator, the weight of the value loss and the discriminator's updates for each batch: 0 (3e-4, 1e-3, 0.5, "
    "2), 0.688 (3e-4, 3e-4, 0.5, 1), 0.667 (3e-4, 1e-4, 0.5, 1), 0.698 (3e-4, 3e-5, 0.5, 1), 0.623 (3e-4, 3e-4, 0.02, "
    "1), 0.448 (1e-3, 3e-4, 0.5, 1), 0.685 (1e-3, 3e-4, 0.02, 1); with the second of these and a clip at 1 in place of "
    "3 0.627, with a weight of KL of 0.05 0.660. With the absorbing state alone: 0.710 (3e-4, 0.5), 0.678 (3e-4, "
    "0.02), 0.765 (1e-3, 0.5), 0.755 (1e-3, 0.02). With responses alone: 0 (3e-4, 1e-3, 0.5, 2), 0.330 (3e-4, 3e-4, "
    "0.5, 1), 0.378 (the same with a weight decay of 1), 0.387 (3e-4, 1e-4, 0.5, 1), 0.383 (1e-3, 3e-4, 0.02, 1). PPO "
    "on the outcome 0.740 (3e-4, 0.5); with 1e-3 it was stopped, slower. Imitation had six trials (see the bench), "
    "between 0.28 and 0.34. So the inverse variant had nine trials, imitation six, PPO on the outcome two and the "
    "implicit variant one. The first inverse trial repeats what protocol 1 found: the discriminator soon tells all "
    "responses of the policy from the sixteen dialogues, and its reward leads nowhere. A slower one does not, and a "
    "smaller weight of the value loss keeps large rewards from disturbing the policy. The paper's text was not "
    "available, beyond its abstract and summaries by others, nor was any code of its authors. Shown: the inverse "
    "variant completes 0.73 of the errands, imitation of the same dialogues 0.36, and 0.70 and 0.35 of those never "
    "trained, without any reward of the environment. What speaks against the claim: the gain comes from the absorbing "
    "state, not from comparing responses. With the absorbing state alone the return is 0.77, with responses alone "
    "0.32, less than imitation's though not decided. Dialogues end when an errand is done, and all of the expert's "
    "do, so the absorbing state tells success almost as a reward would. PPO on the true outcome ends at about the same "
    "return (0.74; undecided) and learns slower, by 0.06 of the area under the curve; the absorbing state alone is as "
    "fast as with responses. PPO on the outcome had another step size, two trials and no smaller weight of the "
    "value loss. So this is evidence for adversarial imitation in the environment, and none for rewards of single "
    "responses. Ten pairs, as a run takes more than a minute: the mechanisms would need 72 pairs and more.",
    fidelity=(
        Fidelity("first stage", "supervised fine-tuning on the expert's trajectories"),
        Fidelity(
            "inspection",
            "the expert's action is observed at each step, and the agent's own is compared with it",
            "the expert's dialogues are compared with dialogues of the agent, which has its own states",
        ),
        Fidelity(
            "inverse reward",
            "of a discriminator that is learned from expert and agent (its form is not in what was available)",
            "log-odds of being an expert's turn, clipped",
        ),
        Fidelity(
            "absorbing state",
            "not in what was available",
            "compared too (Kostrikov et al., 2019), since else an agent that finishes early is rewarded less or more "
            "than it should be, whatever its commands",
        ),
        Fidelity("policy update of the inverse variant", "PPO", "PPO with a critic of turns"),
        Fidelity(
            "implicit reward",
            "the expert's action is preferred to the agent's at the same step, without a reward model",
            "the same, by SPIN's loss; looked at, not in the trial",
        ),
        Fidelity("reward of the environment", "not used by either variant"),
        Fidelity(
            "tasks", "web, household and multi-hop questions", "finding a thing and bringing it, in up to nine turns"
        ),
        Fidelity(
            "rivals",
            "prompted models, supervised fine-tuning and other tuned agents",
            "supervised fine-tuning and PPO on the outcome",
        ),
    ),
)
