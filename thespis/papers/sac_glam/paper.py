"""SAC-GLAM: improving online RL for LLM agents with soft actor-critic and hindsight relabeling."""

from __future__ import annotations

from thespis.data.feeds import Replay
from thespis.evidence.benches.text_goals import BASELINE, BENCH, MODEL, NUM_ENVS, NUM_TURNS, SETTINGS, STEPS
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import final_return, learning_curve_auc
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.learners.off_policy.hindsight import HindsightFuture, HindsightRelabeling
from thespis.learners.off_policy.temperature import FixedTemperature
from thespis.methods.online.sac import SAC
from thespis.papers.sac_glam.method import SACGLAM

_SAC = SAC(
    **SETTINGS,
    learning_rate=2e-3,
    num_critics=1,
    tau=0.02,
    temperature=FixedTemperature(0.1),
    feed=Replay(
        buffer_size=STEPS,
        batch_size=32,
        learning_starts=512,
        num_updates=6,
        sequence_length=NUM_TURNS,
        num_envs=NUM_ENVS,
    ),
)


def _sac(hindsight: HindsightRelabeling | None) -> SACGLAM:
    return SACGLAM(**MODEL, method=_SAC, hindsight=hindsight, n_step=1, critic_warmup_updates=50)


PAPER = Paper(
    id="sac-glam",
    name="SAC-GLAM",
    citation=SACGLAM.citations[0],
    family="llm-agent-rl",
    summary="A language model that chooses among listed responses learns by discrete soft actor-critic from a replay "
    "buffer of turns; hindsight relabels some of them as if what was reached had been the goal.",
    claim="Off-policy and with hindsight, language models can outperform those that learn on-policy, by PPO, in "
    "multi-goal environments (no figures in the abstract).",
    parts=(
        "thespis.papers.sac_glam.method:SACGLAM",
        "thespis.methods.language.glam:GLAM",
        "thespis.learners.off_policy.hindsight:HindsightFuture",
        "thespis.core.contracts:GoalRelabeler",
    ),
    command="thespis train sac-glam --env text:maze --model tiny --steps 50000 --set context_length=10",
    miniature=BENCH.trial(
        arms=(Arm("SAC-GLAM", _sac(HindsightFuture(0.8))), Arm("without hindsight", _sac(None)), Arm("PPO", BASELINE)),
        headline=Comparison("SAC-GLAM", "PPO", learning_curve_auc()),
        mechanisms=(Comparison("SAC-GLAM", "without hindsight", learning_curve_auc()),),
        context=(
            Comparison("SAC-GLAM", "PPO", final_return()),
            Comparison("SAC-GLAM", "without hindsight", final_return()),
            Comparison("without hindsight", "PPO", learning_curve_auc()),
        ),
    ),
    remarks="Packing one or two of six things replaces Playground-Text: there are 21 goals, and any set that is "
    "packed is one in hindsight. A decoder of one layer, pretrained on a demonstrator that packs anything, replaces "
    "Flan-T5, and reads the environment's last message. Arms have equal environment steps, not equal gradient steps: "
    "SAC-GLAM learns each turn twelve times on average, PPO four times. PPO had eleven trials (see the bench), "
    "SAC-GLAM eight, on seeds from 1,100 on. With bags of three, four seeds and three updates after every 16 steps: "
    "greedy returns of 0.68 and 0.26 and a collapse after 12,288 steps with temperatures of 0.15, 0.05 and 0.02; of "
    "0.54 and 0.41 after 16,384 steps with 0.15 and 0.1, and of 0.61 with 0.1, one-step returns and hindsight for 0.8 "
    "in place of 0.5 of the turns. With bags of two and these settings, two updates had a mean training return of "
    "0.21 over 8,192 steps; six updates, those of the trial, were stopped after 2,000 steps at 0.26. The paper's text "
    "was not available, beyond its abstract and summaries by others, which say that SAC-GLAM needs fewer steps than "
    "PPO and that hindsight adds to it; the code of the authors' next paper, which trains its agent by SAC-GLAM "
    "without hindsight, was. Wall-clock time and unreachable goals are not tested. An older trial, in a maze with one "
    "goal and five seeds, decided nothing. Shown: the mean training return is 0.46 with SAC-GLAM and 0.24 with PPO, "
    "and hindsight is what makes the difference. Without it, with the same settings and no trials of its own, it is "
    "0.15, less than PPO's. At the end greedy play returns 0.77 and 0.57, which 20 pairs do not decide, since five "
    "seeds of SAC-GLAM stay below 0.36. PPO has fewer gradient steps, and more epochs were not tried for it.",
    fidelity=(
        Fidelity(
            "actor",
            "softmax over scores of the listed responses: sums of their tokens' logits",
            "sums of their tokens' log-probabilities",
        ),
        Fidelity("number of critics", "one"),
        Fidelity(
            "critic",
            "two layers of 1,024 units on the decoder's first state, after prompt and response as one text",
            "one layer of 32 units on the features of the prompt, with a value for every response",
        ),
        Fidelity(
            "decoder of the critic", "the actor's adapters, which both losses train", "a copy of the actor's at first"
        ),
        Fidelity("target", "n-step return and the soft value: a sum over responses, by the target network", "one step"),
        Fidelity("actor's loss", "a sum over responses of their probabilities times (alpha log pi - Q)"),
        Fidelity("temperature", "constant, or tuned towards the entropy of equal probabilities", "constant, 0.1"),
        Fidelity("target network", "Polyak rate 0.005 at every update", "0.02, since there are few updates"),
        Fidelity("optimizers", "Adam, one for the actor and one for the critic, with one learning rate"),
        Fidelity("beginning", "the critic learns alone for some updates"),
        Fidelity("model", "Flan-T5 with adapters (LoRA)", "one layer of 32 units, all of which are trained"),
        Fidelity(
            "hindsight",
            "not in the code that was read",
            "a goal that was reached later in the episode, for eight of ten replayed turns",
        ),
        Fidelity("rival", "GLAM: PPO of the same model", "the same, tuned on the bench"),
    ),
)
