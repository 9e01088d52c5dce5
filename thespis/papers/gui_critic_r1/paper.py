"""GUI-Critic-R1: a critic of actions before they are executed, rewarded for verdicts and for suggestions."""

from __future__ import annotations

from thespis.core.records import Citation
from thespis.evidence.benches.irreversible_actions import (
    ANNOTATED_ARM,
    BENCH,
    EXACT_ARM,
    IRREVERSIBLE,
    MEASURES,
    NO_CRITIC_ARM,
    RANDOM_SUGGESTIONS_ENV,
    SUCCESS,
    SUGGESTION_ACCURACY,
    SUPERVISED_ARM,
    TRAINED,
    VERDICT_ACCURACY,
    VERDICT_ARM,
)
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paper import Arm, Fidelity, Paper

_S_GRPO, _VERDICTS, _SUPERVISED = "S-GRPO", VERDICT_ARM.name, SUPERVISED_ARM.name
_RANDOM, _ANNOTATED = "S-GRPO, random suggestions rewarded", ANNOTATED_ARM.name
_NO_CRITIC, _EXACT = NO_CRITIC_ARM.name, EXACT_ARM.name

PAPER = Paper(
    id="gui-critic-r1",
    name="GUI-Critic-R1",
    citation=Citation(
        "Look Before You Leap: A GUI-Critic-R1 Model for Pre-Operative Error Diagnosis in GUI Automation",
        "Wanyan et al.",
        2025,
        "arXiv:2506.04614",
    ),
    family="llm-critic",
    summary="A critic reads each action of an agent before it is executed, and says whether it is right and what to do "
    "instead. After supervised learning it is trained by GRPO on rewards of the format, the verdict and the "
    "suggestion (S-GRPO).",
    claim="The reward of suggestions adds to that of verdicts: suggestions and verdicts are right more often, and "
    "agents that are checked by such a critic succeed more often.",
    parts=(
        "thespis.envs.text.form:Form",
        "thespis.papers.gui_critic_r1.envs:CommandReview",
        "thespis.papers.gui_critic_r1.measures:CriticMeasures",
        "thespis.papers.gui_critic_r1.method:AnnotatedCritic",
        "thespis.methods.language.grpo:GRPO",
    ),
    command="thespis train grpo --env thespis.evidence.benches.irreversible_actions:SUGGESTIONS --steps 19200 --model "
    "tiny --set num_layers=2 hidden_size=32 num_pretrain_steps=1000 feed.group_size=6 feed.num_envs=48",
    miniature=BENCH.trial(
        arms=(
            Arm(_S_GRPO, TRAINED),
            VERDICT_ARM,
            Arm(_RANDOM, TRAINED, env=RANDOM_SUGGESTIONS_ENV),
            SUPERVISED_ARM,
            ANNOTATED_ARM,
            NO_CRITIC_ARM,
            EXACT_ARM,
        ),
        headline=Comparison(_S_GRPO, _VERDICTS, SUCCESS),
        mechanisms=(
            Comparison(_S_GRPO, _VERDICTS, SUGGESTION_ACCURACY),
            Comparison(_S_GRPO, _VERDICTS, VERDICT_ACCURACY),
            Comparison(_S_GRPO, _VERDICTS, IRREVERSIBLE),
        ),
        context=(
            Comparison(_S_GRPO, _SUPERVISED, SUCCESS),
            Comparison(_S_GRPO, _NO_CRITIC, SUCCESS),
            Comparison(_S_GRPO, _RANDOM, SUCCESS),
            Comparison(_VERDICTS, _SUPERVISED, SUCCESS),
            Comparison(_ANNOTATED, _S_GRPO, SUCCESS),
            Comparison(_EXACT, _S_GRPO, SUCCESS),
            Comparison(_S_GRPO, _VERDICTS, MEASURES.success_of_verdicts()),
            NotApplicable(
                "accuracy on GUI-Critic-Test, and success on AndroidWorld",
                "a multimodal model of 7B, screenshots, and an emulator of a telephone",
            ),
        ),
    ),
    remarks="An actor, two fifths of whose commands are random, fills in forms whose buttons send and erase are "
    "final. The critic reads each command before it is executed; after an objection the actor does what is "
    "suggested. What becomes of it is computed exactly. Without a critic 46% of the forms succeed, with "
    "exact critiques all. All critics begin with the same short lesson (83%). What was found: 400 updates "
    "of S-GRPO lead to 88%, GRPO on verdicts to 79% (10 pairs), suggestions are right in 86% and 73%. With "
    "a reward for naming a command drawn at random, on as many samples, it is 75%: what is rewarded "
    "matters, not that there is another reward. What speaks against it: half of the lead is harm to the "
    "rival. GRPO on verdicts falls below the lesson that it began with, by 0.046 (contradicted as a gain), "
    "as its reward does not hold its suggestions; S-GRPO rises above that lesson by 0.043. In the paper the "
    "accuracies rise with verdicts alone, too. Verdicts are no better for the reward of suggestions (0.914 "
    "and 0.913 after 20 pairs), against that part of the claim, and where the actor reads verdicts alone, "
    "both critics lead to 78%. Irreversible errors are fewer (0.108 and 0.132 per form), but not beyond "
    "what the planned looks allow (p = 0.04). Since the actor does as it is told, success has to follow "
    "suggestions: the bench is made so. Supervision on as many annotations, in as many gradient steps, has "
    "90% success, and 0.941 and 0.913 of its verdicts and suggestions are right, with S-GRPO 0.915 and "
    "0.862 (10 seeds); the lead in success of 0.027 is undecided (interval 0.000 to 0.050). Here the "
    "rewards are computed from annotations that could be learned at once, and no reasoning needs to be "
    "found, so that reinforcement learning has nothing of its own to add. The lesson's model is the same "
    "for all seeds, so that intervals leave out how lessons differ. On tuning seeds the lead was 0.03 after "
    "shorter lessons, and after that of 300 steps S-GRPO (0.638) stayed below the lesson alone (0.655); a "
    "lesson with 64 units has 0.871 without any reinforcement learning. The weights of forms in the "
    "measures were mended after the commit that the record names, before any seed of the trial was run; the "
    "bench was checked again with them.",
    fidelity=(
        Fidelity("critic", "Qwen2.5-VL-7B, which reasons at length", "a decoder of two layers and 32 units"),
        Fidelity(
            "what it reads",
            "the instruction, a history of actions, a screenshot and the action",
            "the values that are wanted, those that are filled in, and the command",
        ),
        Fidelity(
            "critique",
            "thoughts, a verdict (correct or incorrect), and a suggestion, which repeats an action that is correct",
            "a verdict and the command to give, without thoughts",
        ),
        Fidelity(
            "data",
            "11,000 actions on the way of demonstrations, and wrong ones of a model, cleaned by GPT-4o",
            "commands of an actor that errs, in forms that the same actor has filled in; annotations are exact",
        ),
        Fidelity(
            "before reinforcement learning",
            "one epoch of supervised learning of annotations, 6,000 with thoughts of larger models that were kept "
            "where they came to the annotation (two epochs for the web)",
            "1,000 steps of supervised learning of 4,096 annotations",
        ),
        Fidelity(
            "reward",
            "format, verdict and suggestion with weights of 0.1, 0.8 and 0.1; without that of suggestions 0.2 and 0.8",
        ),
        Fidelity(
            "reward of a suggestion",
            "1 if a language model calls it similar to the annotation",
            "1 if it is the annotated word",
        ),
        Fidelity(
            "optimizer",
            "GRPO: groups of six critiques of one action, batches of 128, 3e-6, KL penalty of 0.01 (k3), ten epochs",
            "GRPO with groups of six and a KL penalty of 0.01 (k3); batches of 48, 3e-4, and new commands each time",
        ),
        Fidelity("decoding in evaluation", "greedy (code: top_k=1)"),
        Fidelity(
            "actor",
            "an agent that is asked again with the critique when its action is called wrong",
            "a script, two fifths of whose commands are random, which does what is suggested when it is asked again;"
            " what becomes of it is computed, not sampled",
        ),
        Fidelity(
            "figures for the reward of suggestions",
            "without it 66.01 (verdicts) and 47.71 (suggestions), with it 69.20 and 52.43, before both 63.16 and 45.61 "
            "(GUI-I); 57.89 and 40.35, 58.77 and 47.37, 55.26 and 34.21 (GUI-S)",
            "shares, in the tables",
        ),
        Fidelity(
            "figures for success",
            "27.6 with this critic, 22.4 without one, 20.3 with Qwen2.5-VL-7B as it is (AndroidWorld); no figure for "
            "critics that were trained without the reward of suggestions",
            "shares, in the tables",
        ),
        Fidelity("code", "published for the static evaluation only"),
    ),
)
