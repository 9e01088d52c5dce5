"""PIT: a policy reads a reference response and is rewarded for the quality gap over it."""

from __future__ import annotations

from typing import Any

from thespis.core.records import Citation
from thespis.curricula.annealing import ParameterAnnealing
from thespis.evidence.benches.improvable_responses import (
    BASELINE_ARM,
    BENCH,
    FROM_EASY,
    FROM_EASY_STEPS,
    IMPROVED,
    IMPROVER,
    improver_steps,
    references,
    reward_model,
)
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.papers.pit.measures import answer_quality, final_quality, gain, improved_quality

_PIT, _ORDINARY, _OWN = "PIT", BASELINE_ARM.name, "own references alone"


def _improver(curriculum: ParameterAnnealing) -> dict[str, Any]:
    """Options of an arm that maximizes the gap over references."""
    return {"feedback": reward_model(True), "curriculum": curriculum}


PAPER = Paper(
    id="pit",
    name="PIT",
    citation=Citation(
        "Enable Language Models to Implicitly Learn Self-Improvement From Data",
        "Wang et al.",
        2023,
        "arXiv:2310.00898",
    ),
    family="preference-rlhf",
    summary="A policy reads a reference response and is rewarded for the gap in quality over it, by a reward model of "
    "gaps that is fitted to the same preferences as an ordinary one. References are easy to improve at first, and the "
    "policy's own at last; at inference it is applied to its own responses, also repeatedly.",
    claim="Improves responses of an aligned model significantly more than prompting-based Self-Refine, on two real "
    "datasets and a synthetic one, without rubrics.",
    parts=(
        "thespis.papers.pit.feedback:GapReward",
        "thespis.papers.pit.references:LastResponses",
        "thespis.methods.language.ppo_lm:LanguagePPO",
    ),
    command="thespis train ppo-lm --env thespis.evidence.benches.improvable_responses:TASK --model tiny --steps 2880 "
    "--feedback thespis.papers.pit.feedback:GapReward --randomize reference_share=1..1 own_share=0.5..0.5 --set "
    "num_layers=1 hidden_size=32 num_pretrain_steps=2000 num_pretrain_dialogues=1024 learning_rate=1e-3 "
    "feed.num_envs=32 rollout_transform=thespis.papers.pit.references:LastResponses "
    "feedback.labelling_env=thespis.evidence.benches.improvable_responses:TASK",
    miniature=BENCH.trial(
        arms=(
            Arm(_PIT, IMPROVER, _improver(FROM_EASY), steps=FROM_EASY_STEPS),
            BASELINE_ARM,
            Arm(_OWN, IMPROVER, _improver(references(0.0, 1.0)), steps=improver_steps(30)),
        ),
        headline=Comparison(_PIT, _ORDINARY, IMPROVED),
        mechanisms=(
            Comparison(_PIT, _ORDINARY, final_quality()),
            Comparison(_PIT, _OWN, IMPROVED),
        ),
        context=(
            Comparison(_PIT, _ORDINARY, gain()),
            Comparison(_PIT, _ORDINARY, improved_quality(1)),
            Comparison(_PIT, _ORDINARY, answer_quality()),
            NotApplicable("wins over original responses by GPT-4, reward models and people", "models of PaLM 2's size"),
        ),
    ),
    remarks="A decoder of one layer translates phrases of four words, each place with a dictionary of its own. In a "
    "dataset of 1,024 pairs half of the words are random, the second response of a pair has half of its words "
    "from the first, and a judge prefers the one with more right words, with noise. The model is fine-tuned on "
    "the preferred responses, in half of the cases after the other one, so that it can be asked for an "
    "improvement before any reinforcement learning: in this sense the ordinary policy is prompted to refine "
    "itself, without feedback in words. Every arm sees 1,920 responses of a policy in training. What was found, "
    "as interquartile means over seeds: three improvements in succession of the initial model's responses, of "
    "whose words 59% are right, come to 0.68 with PIT and to 0.63 with the ordinary policy. What speaks against "
    "PIT: the ordinary policy's own responses, without any improvement, have 0.77 of the words right, for the "
    "same preferences and as many responses in training, and for one response in place of four at inference. Who "
    "has an ordinary policy needs no improver here. Nothing in this task makes a response easier to improve than "
    "to write, since each word can be told from the prompt alone; tasks of that kind were tried before, and not "
    "kept, as no reward model learned them in the time there was (the bench says more). Improvements do not add "
    "up: PIT comes to 0.69 after the first and to 0.68 after the third, and after one the lead over the ordinary "
    "policy is undecided (0.032, p = 0.084, 24 pairs). The curriculum is undecided as well: own references alone "
    "come to 0.67, 0.02 less (p = 0.36; 89 pairs would decide). PIT's responses without a reference are better "
    "than before training, 0.69, though it was never trained to give any. No arm was tuned: each has one setting, "
    "the first that was tried, and PIT alone was looked at on tuning "
    "seeds, with twice as many updates. PIT's value function explained nothing of its returns there, so that it "
    "learned from noisier advantages than it might; groups of responses to the same reference, a weaker penalty "
    "on KL or a lower temperature, which is reported to help, were not tried. As PIT's own references count as "
    "responses, it has 45 updates and the ordinary policy 60. Initial model and reward models are the same for "
    "all seeds: pairs differ in training and evaluation alone, so that intervals are those for one fit of each "
    "reward model. Reward models were measured before training only, as log-likelihoods of the initial model: "
    "these order 90% of new pairs rightly. The declaration is older than the last change of the bench, "
    "which replaced its "
    "best known before it was measured; the trial was run after the bench had been admitted. Read were "
    "the abstract, reviews of the submission and summaries by "
    "others; neither the paper's sections on method and ablations nor code of the authors was at hand, so that "
    "details of the loss and of the curriculum are as known from these.",
    fidelity=(
        Fidelity(
            "policy",
            "a model of its own: fine-tuned to give the preferred response after the other one",
            "one model for both: fine-tuned to give the preferred response, after the other one in half of the cases",
        ),
        Fidelity(
            "reward model",
            "reads prompt, response and reference, and gives the gap",
            "the same, with the response last",
        ),
        Fidelity(
            "score",
            "a head on a language model",
            "the log-likelihood of the response by a language model, which starts as the initial model",
        ),
        Fidelity(
            "loss of the reward model",
            "orders the gaps of the four combinations of a pair's responses",
            "Bradley and Terry for each of the five ordered pairs of these gaps",
        ),
        Fidelity(
            "curriculum",
            "responses of the dataset, which are easy to improve, then samples of a language model",
            "for a third of the updates each: dispreferred responses, preferred ones, and samples of the policy",
        ),
        Fidelity(
            "own references",
            "of the aligned model, which stays as it is",
            "of the policy itself without a reference, as it is at the time; these tokens are not learned",
        ),
        Fidelity(
            "responses to improve in the evaluation",
            "of the model that was aligned by ordinary reinforcement learning",
            "of the initial model, so that they are the same for all arms",
        ),
        Fidelity(
            "Self-Refine",
            "an instruction-tuned model, prompted for feedback and for a better response",
            "the ordinary policy, asked in the words of the pretraining for a better response, without feedback",
        ),
        Fidelity("responses in training", "not stated in what was read", "equal for all arms, own references included"),
        Fidelity(
            "temperature of improvements", "0.4 to 0.6 is best, as a summary has it", "1, in training and evaluation"
        ),
        Fidelity(
            "judges", "GPT-4, reward models that were not trained on, and people", "the true share of right words"
        ),
        Fidelity(
            "optimizer", "not stated in what was read", "PPO, Adam, 1e-3, two epochs, a KL penalty of 0.1 as a loss"
        ),
        Fidelity("model", "PaLM 2 (Bison)", "a decoder of one layer and 32 units"),
    ),
)
