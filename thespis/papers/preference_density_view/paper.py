"""Density view of preferences: what a reward from comparisons is, and what it is not where annotators disagree."""

from __future__ import annotations

from thespis.evidence.benches.mixed_annotators import (
    BASELINE,
    BENCH,
    DIVERGENCE,
    NAMED_ARM,
    SINGLE_ENV,
    preference_error,
    schedule,
)
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.papers.preference_density_view.method import PreferenceDensity

PAPER = Paper(
    id="preference-density-view",
    name="Preference density view",
    citation=PreferenceDensity.citations[0],
    family="preference-rlhf",
    summary="A reward that is fitted to comparisons is the log-density of what an annotator would produce, if the "
    "annotator chooses by Luce's rule; with several annotators the model must say that there are several.",
    claim="Fitting a reward to pairs recovers an annotator's implicit density; with two annotators who are not told "
    "apart a single reward does not, and a model of two annotators does.",
    parts=(
        "thespis.papers.preference_density_view.method:PreferenceDensity",
        "thespis.papers.preference_density_view.envs:AnnotatedPoints",
    ),
    command="thespis train thespis.papers.preference_density_view.method:PreferenceDensity --set num_annotators=2 "
    "--env thespis.evidence.benches.mixed_annotators:POINTS --steps 128000",
    miniature=BENCH.trial(
        first_seed=20,
        arms=(
            Arm("two rewards", PreferenceDensity(num_annotators=2, learning_rate=schedule(1e-2))),
            Arm("one reward", BASELINE),
            Arm("one annotator", BASELINE, env=SINGLE_ENV),
            NAMED_ARM,
        ),
        headline=Comparison("two rewards", "one reward", DIVERGENCE),
        mechanisms=(
            Comparison("one annotator", "one reward", DIVERGENCE),
            Comparison("two rewards", "one reward", preference_error()),
        ),
        context=(
            Comparison("named annotators", "one reward", DIVERGENCE),
            Comparison("named annotators", "two rewards", DIVERGENCE),
            NotApplicable("adaptation by other rules than Luce's: DPO and SLiC", "a model before adaptation"),
            NotApplicable("annotators who prefer short and long sentences, LM1B", "a language model of sentences"),
        ),
    ),
    remarks="Points on a line, as in the paper's toy experiment, with densities that overlap more and small "
    "networks; all arms have the same proposals and the same target, the mixture of two normal densities, and differ "
    "in who gives the labels and in what the model takes them for. Learning rates of 3e-3 and 1e-2 were tried for "
    "every arm, on seeds 1,100 and 1,101. One reward recovers the density of one annotator (a divergence of 0.006; "
    "it was 0.84 before training) and not that of two (0.379), as all of its seeds agree; two rewards come to 0.033. "
    "Where labels say by whom they are, one reward that sees this is nearer still (0.011). What speaks against it: "
    "the model of two annotators is right about how many there are and how they choose, which nobody knows of "
    "people, and 64,000 labels are many; effects of more than 60 standard deviations say that the error of one "
    "reward is one of its assumption, which more data would not mend, and that seeds hardly differ. Policies that "
    "are adapted to the labels, and language, were not tried. The first trial, on seeds 0 to 9 with the same "
    "verdicts (a lead of 0.346), had been declared before the last version of its bench; so this one has fresh "
    "seeds.",
    fidelity=(
        Fidelity("choice", "the first of two points with the probability p(x1) / (p(x1) + p(x2)): Luce's rule"),
        Fidelity("annotators", "two normal densities, 40% and 60% of the labels, drawn anew for each pair"),
        Fidelity(
            "densities",
            "at -2.5 and 2.5 with standard deviations of 0.25 and 1, between -10 and 10",
            "at -2 and 2, of 0.5 and 1, between -7 and 7: a small network learns the narrow peak in seconds",
        ),
        Fidelity("single annotator", "whose density is the mixture of both"),
        Fidelity(
            "model of two annotators",
            "two networks and the logits of their shares; the likelihood of a label is the sum over both",
        ),
        Fidelity("density of that model", "the mixture of both normalized densities, with the learned shares"),
        Fidelity("networks", "four hidden layers of 64 tanh units", "two of 32"),
        Fidelity(
            "pairs", "32,768, all in each of 8,192 steps of Adam", "64 fresh pairs in each of 1,000 steps of Adam"
        ),
        Fidelity("learning rate", "1e-4, falling by a cosine", "1e-2, falling by a cosine"),
        Fidelity(
            "proposals", "a normal density of standard deviation 5, cut at the bounds", "the same shape, of 3.5 at 7"
        ),
        Fidelity("measure", "densities are plotted", "KL divergence from the true mixture on a grid of 128 points"),
    ),
)
