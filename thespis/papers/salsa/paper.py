"""SALSA: PPO whose penalty on KL is to the weight average of two fine-tuned models, against PPO with one of them."""

from __future__ import annotations

import dataclasses
from typing import Any

from thespis.evidence.benches.over_optimization import BENCH, HELPFULNESS, PENALIZED, REWARD_MODEL
from thespis.evidence.benches.steered_text import MODEL
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paired_verdict import plan_looks
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.learners.language.policy_losses import ReverseKL
from thespis.papers.salsa.envs import TEACHER_ENV
from thespis.papers.salsa.measures import distance_to, model_aspect
from thespis.papers.salsa.method import SALSA

_TEXTS: dict[str, Any] = {"expert_env": TEACHER_ENV, "num_demonstrations": 64}
_POLICY: dict[str, Any] = MODEL | {"feed": PENALIZED.feed, "learning_rate": 1e-3}
_METHOD = SALSA(**_POLICY, **_TEXTS, num_sft_updates=200, sft_learning_rate=1e-2, kl_penalty=ReverseKL(0.3))
_ONE_REFERENCE = dataclasses.replace(_METHOD, reference_weights=(1.0, 0.0))
_WEAK_PENALTY = dataclasses.replace(_ONE_REFERENCE, kl_penalty=ReverseKL(0.1))
_OTHER_REFERENCE = dataclasses.replace(_METHOD, reference_weights=(0.0, 1.0))
_FROM_THE_SOUP = dataclasses.replace(_METHOD, initial_weights=(0.5, 0.5))
_SALSA, _PPO, _FAR = "SALSA", "PPO", "PPO with a weaker penalty"
_OTHER, _INITIAL = "PPO with the other model as reference", "PPO from the soup"
MARGIN = 0.03
"""Helpfulness that counts as level: a quarter of what PPO gains on tuning seeds."""
_REFERENCE = model_aspect("helpfulness", "helpfulness of the reference", lambda states: states.reference)
_FROM_START = distance_to("the first fine-tuned model", lambda state: state.fine_tuned[0])

PAPER = Paper(
    id="salsa",
    name="SALSA",
    citation=SALSA.citations[0],
    family="preference-rlhf",
    summary="One pretrained model is fine-tuned twice, and the weights of the two models are averaged. PPO begins with "
    "one of them, and its penalty on KL is to the average, a model soup, in place of the model that it began with.",
    claim="Policies are better than those of PPO with one fine-tuned model as reference, as the soup lies in a region "
    "of larger reward and lets the policy go further from where it began.",
    parts=(
        "thespis.papers.salsa.method:SALSA",
        "thespis.language.merging:weighted_sum",
        "thespis.papers.rlaif_vs_strong_teacher_sft.method:TeacherFineTuning",
        "thespis.feedback.fitted_reward:ComparisonReward",
    ),
    command="thespis train thespis.papers.salsa.method:SALSA --env thespis.papers.rluf.envs:REACTIONS --feedback "
    "thespis.feedback.fitted_reward:ComparisonReward --model tiny --steps 6400 --set num_layers=1 hidden_size=32 "
    "num_pretrain_steps=1500 feed.max_steps=1 learning_rate=1e-3 kl_penalty=ReverseKL kl_penalty.coef=0.3 "
    "expert_env=thespis.papers.salsa.envs:TEACHER num_demonstrations=64 num_sft_updates=200 sft_learning_rate=1e-2 "
    "feedback.labelling_env=thespis.papers.rluf.envs:REACTIONS feedback.num_prompts=64",
    miniature=BENCH.trial(
        arms=(
            Arm(_SALSA, _METHOD, REWARD_MODEL),
            Arm(_PPO, _ONE_REFERENCE, REWARD_MODEL),
            Arm(_FAR, _WEAK_PENALTY, REWARD_MODEL),
            Arm(_OTHER, _OTHER_REFERENCE, REWARD_MODEL),
            Arm(_INITIAL, _FROM_THE_SOUP, REWARD_MODEL),
        ),
        headline=Comparison(_SALSA, _PPO, HELPFULNESS, margins=(MARGIN,)),
        mechanisms=(
            Comparison(_SALSA, _PPO, _REFERENCE),
            Comparison(_SALSA, _PPO, _FROM_START),
            Comparison(_SALSA, _FAR, HELPFULNESS),
            Comparison(_SALSA, _OTHER, HELPFULNESS, margins=(MARGIN,)),
        ),
        context=(
            Comparison(_INITIAL, _SALSA, HELPFULNESS, margins=(MARGIN,)),
            Comparison(_INITIAL, _PPO, HELPFULNESS, margins=(MARGIN,)),
            Comparison(_OTHER, _PPO, HELPFULNESS, margins=(MARGIN,)),
            Comparison(_SALSA, _FAR, _FROM_START),
            NotApplicable(
                "win rates on MT-Bench, Arena-Hard and UltraFeedback", "models of billions of weights, and a judge"
            ),
        ),
        looks=plan_looks((10, 20)),
    ),
    remarks="A decoder of one layer writes texts of at most 13 tokens, and how much a text helps is known. For every "
    "seed one pretrained model is fine-tuned twice on the same 64 texts, in another order. All arms but the "
    "last begin with the first of the two, and have the same reward model, seed by seed, from 64 noisy "
    "comparisons of texts of the pretrained model. What was found: texts of SALSA have a mean helpfulness of "
    "0.88 and those of PPO 0.74. SALSA is ahead in all ten pairs, by 0.137 on average (0.023 to 0.301, p = "
    "0.002) and by 0.031 in the median; the table has interquartile means, in which failures count for little. "
    "The soup itself has 0.71 and the first model 0.65 (shown). SALSA ends 5.1 nats per text from the first "
    "model, PPO 2.4 (shown). PPO with a weaker penalty, which ends 4.5 nats away, comes to 0.75 (SALSA's lead "
    "is 0.118, p = 0.0001, 20 pairs), and PPO with the other fine-tuned model as reference to 0.83 (0.047, p = "
    "0.011, 20 pairs, and 0.023 without the one pair in which it failed). What speaks against the lead: it is "
    "mostly that SALSA does not fail. PPO ends at over-optimized texts (a helpfulness of 0.33) with two of the "
    "ten seeds, and with the others at 0.85, where SALSA has 0.02 to 0.10 more. These two make up four fifths "
    "of the mean difference. PPO that only begins at the soup, with the soup as its reference as well, is level"
    " with SALSA (0.87 and 0.88): who has a soup may simply begin with it. Also the other fine-tuned model "
    "alone as reference, without any average, is better than the model that PPO began with (0.080, shown, and "
    "0.028 without one pair in which only PPO failed). So a part of the gain is that the reference is another "
    "model than the first, whatever it is. PPO had three penalties on tuning seeds 1,000 to 1,002, by "
    "helpfulness: 0.732 (0.1), 0.833 (0.3) and 0.782 (1); SALSA the same three: 0.836, 0.843 and 0.802. The "
    "best of each is in the trial; no tuning seed of PPO failed at 0.3, so that the trial's seeds were less "
    "kind to it, and penalties between 0.3 and 1 were not tried. SALSA depends less on the penalty. How far a "
    "policy goes from the first model says little by itself: PPO with a weaker penalty goes about as far and is"
    " worse. The soup is what was looked for when fine-tuning was chosen, by the helpfulness of both models and"
    " of their soup, on seeds 1,000 to 1,002, before any reinforcement learning. For 200 steps on the same 64 "
    "texts these were 0.64, 0.63 and 0.65 at a step size of 1e-3, 0.63, 0.63 and 0.66 at 3e-3, and 0.63, 0.66 "
    "and 0.69 at 1e-2, which was taken; 0.64, 0.60 and 0.63 for 600 steps at 1e-3. With 256 texts they were "
    "0.65, 0.68 and 0.70 at 3e-3, and 0.64, 0.67 and 0.60 at 1e-2, where one of three soups is worse than its "
    "parts; with 256 texts of which half are the best ones 0.73, 0.74 and 0.78 at 3e-3; and with 64 texts and "
    "60 steps 0.65, 0.63 and 0.67 at 5e-3. Where each model has 64 texts of its own the soup gains more, 0.64, "
    "0.63 and 0.69 at 1e-3, and 0.63, 0.66 and 0.72 at 3e-3; this was not taken, as SALSA would have twice the "
    "texts of PPO. So with small, careful steps of fine-tuning little can be expected. The best of the two "
    "fine-tuned models as reference was not tried, nor other weights. Helpfulness at an equal distance, "
    "interpolated along the training, was dropped as a measure before the declaration: on tuning seeds it was "
    "0.797 for SALSA and 0.835 for PPO at one nat from the first model. A margin of 0.03 of helpfulness was "
    "declared to be level, a quarter of what PPO gains on tuning seeds. Of the paper the abstract, summaries "
    "and short reviews could be read, and no code.",
    fidelity=(
        Fidelity(
            "reference", "the weight average of two fine-tuned models from one checkpoint", "the same, half of each"
        ),
        Fidelity("initial policy", "a fine-tuned model; not stated in what was read which", "the first of the two"),
        Fidelity(
            "fine-tuning",
            "two independent runs; whether they differ in data, order or settings was not stated in what was read",
            "the same 64 texts in another order, of which 30% are the best ones and the others random",
        ),
        Fidelity(
            "step size of fine-tuning",
            "not stated in what was read",
            "Adam, 1e-2, 200 steps: large, so that the two models differ",
        ),
        Fidelity(
            "penalty on KL",
            "added to the objective",
            "a loss of its own, with a weight of 0.3, tuned for SALSA and PPO",
        ),
        Fidelity(
            "reward model",
            "learned from preferences",
            "learned from 64 noisy comparisons of texts of the pretrained model, from random parameters; the same for "
            "all arms, seed by seed",
        ),
        Fidelity("PPO", "settings not stated in what was read", "Adam, 1e-3, two epochs, GAE over tokens, 100 updates"),
        Fidelity("judge", "another language model: win rates", "the true helpfulness of 1,000 sampled texts"),
        Fidelity("other weights, soups of three models", "not stated in what was read", "possible, and not tried"),
        Fidelity("model", "Llama 2 of 7B, Mistral of 7B and Gemma of 2B", "a decoder of one layer and 32 units"),
    ),
)
