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
    remarks="",
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
