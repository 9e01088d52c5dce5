"""A critical evaluation of AI feedback: imitation of a strong teacher against feedback of as strong a critic."""

from __future__ import annotations

from thespis.core.contracts import Mode
from thespis.core.records import Citation
from thespis.evidence.benches.teachers_and_critics import (
    BASELINE,
    BENCH,
    REWARD,
    STRONG_TEACHER_ENV,
    WEAK_TEACHER_ENV,
    texts_and_comparisons,
    texts_only,
)
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.papers.rlaif_vs_strong_teacher_sft.measures import reward_gain, true_reward

_IMITATION, _WEAK_IMITATION = "imitation of the strong teacher", "imitation of the weak teacher"
_FEEDBACK, _STRONG_FEEDBACK = "feedback after the weak teacher", "feedback after the strong teacher"
_GAIN, _GREEDY = reward_gain(), true_reward(Mode.EXPLOIT)

PAPER = Paper(
    id="rlaif-vs-strong-teacher-sft",
    name="RLAIF against a strong teacher",
    citation=Citation(
        "A Critical Evaluation of AI Feedback for Aligning Large Language Models",
        "Sharma et al.",
        2024,
        "arXiv:2402.12366",
    ),
    family="evaluation",
    summary="A controlled comparison of what a judge can give for a prompt: a text to imitate, or a comparison of two "
    "of the model's own texts, to which preference optimization is applied after some imitation.",
    claim="What is gained by AI feedback comes mostly from a critic that is stronger than the teacher imitated before; "
    "imitation of a teacher as strong as the critic is better than existing pipelines with feedback.",
    parts=(
        "thespis.papers.rlaif_vs_strong_teacher_sft.envs:JudgedWriting",
        "thespis.papers.rlaif_vs_strong_teacher_sft.method:TaughtDPO",
        "thespis.papers.embodied_planner_r1.method:ExpertFineTuning",
    ),
    command="thespis train thespis.papers.rlaif_vs_strong_teacher_sft.method:TaughtDPO --env "
    "thespis.evidence.benches.teachers_and_critics:STRONG_CRITIC --model tiny --steps 2000 --set num_layers=1 "
    "hidden_size=64 num_pretrain_steps=300 expert_env=thespis.evidence.benches.teachers_and_critics:WEAK_TEACHER "
    "num_demonstrations=400 num_sft_updates=200 beta=1 feed.num_envs=2000 feed.num_updates=400",
    miniature=BENCH.trial(
        arms=(
            Arm(_IMITATION, texts_only(STRONG_TEACHER_ENV), steps=2),
            Arm(_WEAK_IMITATION, texts_only(WEAK_TEACHER_ENV), steps=2),
            Arm(_FEEDBACK, BASELINE),
            Arm(_STRONG_FEEDBACK, texts_and_comparisons(STRONG_TEACHER_ENV)),
        ),
        headline=Comparison(_IMITATION, _FEEDBACK, REWARD),
        mechanisms=(
            Comparison(_FEEDBACK, _STRONG_FEEDBACK, _GAIN),
            Comparison(_FEEDBACK, _WEAK_IMITATION, REWARD),
        ),
        context=(
            Comparison(_STRONG_FEEDBACK, _IMITATION, REWARD),
            Comparison(_STRONG_FEEDBACK, _FEEDBACK, REWARD),
            Comparison(_IMITATION, _FEEDBACK, _GREEDY),
            NotApplicable(
                "win rates against another model's answers, judged by GPT-4 and by Claude",
                "language models of 6B to 13B and more, and judges that can be prompted",
            ),
        ),
    ),
    remarks="The paper's text could not be read, but for its abstract and the caption of a figure: what is compared "
    "with it is the authors' code, with the figures that their plots are drawn from. A decoder of one layer "
    "writes up to two sentences about a topic for a reader, and the true reward of a text is known. Strong "
    "and weak judges are one construction with two numbers: a judge's score is the true reward with Gumbel "
    "noise of a scale of 1/8 or 1/3. As critic the judge compares two scores, which is the model of Bradley "
    "and Terry. As teacher the judge gives the best of 64 drafts by the same scores. With ever more drafts, "
    "these texts are samples of the language model whose log-ratio to the drafts is the critic's own reward, "
    "so that no third number says how strong a teacher is against a critic of the same name. With endless "
    "data DPO with a beta of 1 would turn the imitator of the weak judge into a better writer than the strong "
    "teacher (a rationality of 3 and 8 together): nothing in the construction decides for imitation. All arms "
    "have 4,000 prompts and make 1,000 gradient steps; texts and comparisons are others for every seed. What "
    "was known from tuning seeds: imitation of the strong teacher 0.87, of the weak one about 0.62, feedback "
    "after the weak teacher 0.75 from 0.64, and with twice as many updates 0.79, still growing. So the lead "
    "of imitation is one at equal prompts and steps. Found: imitation of the strong teacher has 0.847 and "
    "feedback after the weak teacher 0.709 (shown); greedy texts have 0.995 and 0.870 (shown). Feedback gains "
    "0.105 after 400 texts of the weak teacher and 0.105 after as many of the strong one (undecided): that a "
    "weak first teacher is what makes feedback look useful is not seen here. It leaves imitation of 4,000 "
    "texts of the weak teacher, 0.675, behind (shown): feedback of a strong critic does help a weakly taught "
    "model. After the strong teacher it ends 0.002 above imitation of all its texts on the same ten seeds "
    "(undecided), where the paper has 77.9 for Mistral 7B against 75.3, and less for two other models. What "
    "speaks against the size: fine-tuning and comparisons have equal numbers of steps, but comparisons had "
    "not converged, as said. How the lead depends on the strength of the judges (64 drafts; 8 and 3) was not "
    "measured: with few drafts a teacher is weaker than the critic of the same name, and with two a text says "
    "no more than one comparison.",
    fidelity=(
        Fidelity(
            "equal prompts",
            "imitation of texts for all prompts, against imitation for 10% and comparisons for the other 90%",
            "the same, of 4,000 prompts",
        ),
        Fidelity(
            "teachers and critics",
            "GPT-3.5 and GPT-4 (or Claude) write, GPT-4 (or Claude) compares",
            "a weak and a strong judge write, the strong one compares; a judge's texts are the best of 64 drafts by "
            "the scores that it compares by",
        ),
        Fidelity(
            "pairs",
            "code: a sample of the fine-tuned model (temperature 1, most likely 90%) and, by default, the weak "
            "teacher's text; two samples where so chosen",
            "two samples of the fine-tuned model, at a temperature of 1",
        ),
        Fidelity("preference learning", "DPO on pairs that are compared once, with the fine-tuned model as reference"),
        Fidelity(
            "beta",
            "0.05, for answers of up to hundreds of tokens",
            "1, tuned, for texts of at most 13 tokens",
        ),
        Fidelity(
            "passes",
            "code: nine over the texts for 10%, six over those for all prompts, three over the comparisons",
            "16 over the texts for 10%, eight over those for all, seven over the comparisons: 1,000 steps in every arm",
        ),
        Fidelity("optimizer", "RMSProp, 1e-6 for texts and less for comparisons", "Adam, tuned"),
        Fidelity("evaluation", "win rate by the critic itself, at a temperature of 0.7", "the true reward, at 1"),
        Fidelity(
            "figures for imitation of GPT-4 and for feedback after GPT-3.5",
            "57.4 and 47.6 (Llama 7B), 70.1 and 65.1 (Llama 2 13B), 62.3 and 59.6 (Yi 6B), 75.3 and 71.1 (Mistral 7B), "
            "77.8 and 72.8 (Mixtral), 55.5 and 57.5 (DeepSeek 7B); with Claude in place of GPT-4 64.7 and 66.5 "
            "(Llama 7B), 69.4 and 71.4 (Mistral 7B): not always a lead of imitation",
            "true rewards, in the tables",
        ),
        Fidelity(
            "figures for the gain of feedback",
            "after 10% of GPT-3.5's texts 5.1 (Llama 7B), 10.6 (Yi 6B) and 16.0 (Mistral 7B); after 10% of GPT-4's "
            "1.1, 2.0 and 5.5",
            "true rewards, in the tables",
        ),
        Fidelity("model", "five base models of 6B to 13B, and Mixtral", "a decoder of one layer and 64 units"),
    ),
)
