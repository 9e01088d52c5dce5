"""Sequence reinforcement learning."""

from __future__ import annotations

import dataclasses

from thespis.evidence.benches.action_sequences import BASELINE, BENCH, ENV, REPEATED, REPEATED_ENV, STEPS, TUNED_SRL
from thespis.evidence.claims import NonInferiority
from thespis.evidence.comparisons import Comparison, NoWorse
from thespis.evidence.continuous_control import LARGE_SAC, LARGE_SETTINGS, LARGE_STEPS, MUJOCO_ENVS
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Fidelity, Paper, Trial
from thespis.papers.srl.measures import frequency_averaged_score
from thespis.papers.srl.method import SRL

PAPER = Paper(
    id="srl",
    name="SRL",
    citation=SRL.citations[0],
    family="off-policy-ac",
    summary="A recurrent actor decides a sequence of actions from one observation. A critic of single actions trains "
    "each of them, in states that a learned model predicts; acting needs no model and few observations.",
    claim="Comparable to the state of the art although it observes less often, and a significantly better "
    "Frequency-Averaged Score than SAC.",
    parts=(
        "thespis.papers.srl.method:SRL",
        "thespis.papers.srl.temporal_recall:SequenceActor",
        "thespis.papers.srl.temporal_recall:TemporalRecall",
        "thespis.papers.srl.temporal_recall:DynamicsModel",
        "thespis.papers.srl.measures:frequency_averaged_score",
    ),
    command="thespis train srl --env Pendulum-v1 --set action_sequence_length=8 learning_starts=1000",
    miniature=BENCH.trial(
        arms=(
            Arm("SRL", TUNED_SRL),
            Arm("SAC", BASELINE),
            Arm("SRL without recall", dataclasses.replace(TUNED_SRL, use_predicted_states=False)),
            Arm("SAC, actions repeated", REPEATED, env={ENV: REPEATED_ENV}, steps=STEPS // 4),
        ),
        headline=Comparison("SRL", "SAC", frequency_averaged_score()),
        mechanisms=(Comparison("SRL", "SRL without recall", frequency_averaged_score()),),
        context=(
            Comparison("SRL", "SAC, actions repeated", frequency_averaged_score()),
            NoWorse("SRL", "SAC", final_return(), margin=50.0),
        ),
    ),
    remarks="The pendulum stands for the environments of MuJoCo. The score covers one observation in 1 to 16 steps, "
    "the authors' one in 1 to 30; it is not scaled, which does not change the order within an environment. "
    "SRL observes once in four steps in training and in its final return, where SAC observes at every step. "
    "Without recall, every action of a sequence is valued in the state that the actor observed. SAC with "
    "repeated actions decides once in four steps, with as many updates as the others: it is context, as a "
    "rival that the abstract does not name. The margin of the final return is 50, of 1,242 between random "
    "play and 0. Online planning is not tested. Shown: the better score than SAC, and that it needs the "
    "predicted states: without them SRL is no better than SAC. Undecided in 20 pairs: whether it is better "
    "than SAC that repeats its actions (0.65 standard deviations ahead), and whether its final return, from a "
    "quarter of the observations, is within 50 of that of SAC.",
    fidelity=(
        Fidelity("actor", "two linear layers with one ReLU between them, then a GRU whose input is the last action"),
        Fidelity(
            "critic target", "single actions: the actor observes the next state and continues from the stored action"
        ),
        Fidelity("actor loss", "sum over the sequence of alpha log pi minus the smaller of two critics"),
        Fidelity("states of later actions", "predicted by the model's target copy; no gradient flows through them"),
        Fidelity("model", "predicts the next observation, by its mean squared error"),
        Fidelity("temperature", "tuned by the mean log-probability over the sequence, target minus the action size"),
        Fidelity("target networks", "critics and model, Polyak rate 0.005 at every update"),
        Fidelity("batches", "one for the critics, another one for model and actor", "one for all, which saves time"),
        Fidelity(
            "actor updates", "at every n-th update; n is an argument that no published script sets", "at every second"
        ),
        Fidelity("initial weights", "Xavier uniform, biases 0", "uniform by fan-in, as SAC's here"),
        Fidelity(
            "evaluation",
            "1, 2, 4, 6 to 30 steps an observation, 10 episodes each, of the best checkpoint",
            "1, 4, 8, 12 and 16 steps, 10 episodes each, of the last policy",
        ),
        Fidelity(
            "SAC with repeated actions",
            "one update and one discount per decision",
            "four updates per decision and the discount of four steps, with which it does better",
        ),
        Fidelity("sizes", "256 units, batches of 256, learning rate 3e-4", "32 units, batches of 32, rates tuned"),
        Fidelity("discount", "0.99", "0.97"),
    ),
    full=Trial(
        arms=(
            *(Arm(f"SRL {n}", SRL(**LARGE_SETTINGS, action_sequence_length=n)) for n in (2, 4, 8, 16)),
            Arm("SAC", LARGE_SAC),
        ),
        envs=MUJOCO_ENVS,
        steps=LARGE_STEPS,
        claims=tuple(NonInferiority(f"SRL {n}", "SAC", final_return(), margin=100.0) for n in (2, 4, 8, 16)),
        max_looks=1,
    ),
)
