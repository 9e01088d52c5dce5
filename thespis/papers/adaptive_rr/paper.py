"""A replay ratio that rises once the critic's plasticity has recovered."""

from __future__ import annotations

import dataclasses

from thespis.core.records import Citation
from thespis.data.feeds import Replay
from thespis.evidence.claims import Superiority
from thespis.evidence.measures import final_return, learning_curve_auc
from thespis.evidence.paper import Arm, Fidelity, Paper, Trial
from thespis.learners.off_policy.replay_ratio import Adaptive
from thespis.methods.online.drq_v2 import DrQv2, RandomShift

_STEPS = 8_000
_LOW_RATIO_FEED = Replay(batch_size=32, learning_starts=1_000, update_interval=2, sequence_length=3)
_LOW_RATIO = DrQv2(
    learning_rate=1e-3,
    discount=0.97,
    hidden_sizes=(64, 64),
    feature_size=32,
    noise_decay_updates=_STEPS / 4,
    augmentation=RandomShift(1),
    feed=_LOW_RATIO_FEED,
)
_HIGH_RATIO_FEED = dataclasses.replace(_LOW_RATIO_FEED, num_updates=4)
_SLOW_NOISE_DECAY = {"noise_decay_updates": _STEPS * 1.0}

PAPER = Paper(
    id="adaptive-rr",
    name="Adaptive RR",
    citation=Citation(
        "Revisiting Plasticity in Visual Reinforcement Learning: Data, Modules and Training Stages",
        "Ma et al.",
        2024,
        "arXiv:2310.07418",
    ),
    family="off-policy-ac",
    summary="Actor-critic on image observations with an adaptive replay ratio: few updates per step until the share of "
    "the critic's active units has settled, and many from then on.",
    claim="Data augmentation is essential, and with the same number of steps an adaptive replay ratio learns more than "
    "a constant low or high one.",
    parts=(
        "thespis.learners.off_policy.replay_ratio:Adaptive",
        "thespis.methods.online.drq_v2:RandomShift",
        "thespis.methods.online.drq_v2:DrQv2",
        "thespis.papers.adaptive_rr.envs:PixelReacher",
    ),
    command="thespis train drq-v2 --env thespis.papers.adaptive_rr.envs:PixelReacher "
    "--set replay_ratio=Adaptive num_updates=4",
    miniature=Trial(
        arms=(
            Arm(
                "adaptive",
                dataclasses.replace(
                    _LOW_RATIO, replay_ratio=Adaptive(check_interval=2_000, check_window=200), feed=_HIGH_RATIO_FEED
                ),
            ),
            Arm("low", _LOW_RATIO),
            Arm("high", dataclasses.replace(_LOW_RATIO, feed=_HIGH_RATIO_FEED, **_SLOW_NOISE_DECAY)),
            Arm("low, as seen", dataclasses.replace(_LOW_RATIO, augmentation=None)),
        ),
        envs=("thespis.papers.adaptive_rr.envs:PixelReacher",),
        steps=_STEPS,
        claims=(
            Superiority("adaptive", "low", final_return()),
            Superiority("adaptive", "high", final_return()),
            Superiority("adaptive", "low", learning_curve_auc()),
            Superiority("adaptive", "high", learning_curve_auc()),
            Superiority("low", "low, as seen", final_return()),
        ),
    ),
    remarks="Instead of the DeepMind Control Suite and two million steps, the miniature uses a reacher of twelve by "
    "twelve pixels and 8,000 steps. The replay ratio goes from 0.5 to 2, as in the paper; the critic's active units "
    "are checked seven times, in the paper's runs about forty times. Exploration noise decays over somewhat more than "
    "half of an arm's updates; in this trial only updates that were applied counted, so that the adaptive arm's noise "
    "decayed over those at its first ratio. Since then all updates that the feed offers count, as environment steps do "
    "in the authors' code. Not tried: resets, ReDo, and which module loses plasticity. Not shown: with ten seeds the "
    "high ratio ends highest and the adaptive one between it and the low one, but no two can be distinguished. An "
    "adaptive ratio is meant to prevent many early updates from ruining the critic, and nothing shows such damage: in "
    "so few steps of so small an environment more updates simply mean more learning, and no arm has learned much. "
    "Augmentation, by one pixel of twelve, is ahead of none by a return of 3, at returns of about -80, which is not "
    "decided either.",
    fidelity=(
        Fidelity("replay ratio", "from 0.5 to 2 updates per step, once, and never back"),
        Fidelity(
            "when it rises",
            "the critic's mean share of active units over the last of 50 episodes differs by at most 0.001 from that "
            "at the last check; the first share counts as a check",
            "the same rule, counted in updates that the feed offers",
        ),
        Fidelity("active units", "positive activations in both hidden layers of both critics, over a batch"),
        Fidelity("exploration noise", "decays with environment steps", "with updates offered, a fixed number per step"),
        Fidelity("targets", "minimum of two target critics, three-step returns, clipped noise on the next action"),
        Fidelity("actor", "ascends the minimum of both critics, also with clipped noise; no gradient to the encoder"),
        Fidelity("optimizer", "Adam with 1e-4 for encoder, actor and critics", "1e-3 in the miniature"),
        Fidelity("trunks", "one of the two critics together", "one for each critic"),
    ),
    full=Trial(
        arms=(
            Arm(
                "adaptive",
                DrQv2(
                    replay_ratio=Adaptive(),
                    feed=Replay(
                        batch_size=256, learning_starts=2_000, update_interval=2, num_updates=4, sequence_length=3
                    ),
                ),
            ),
            Arm("low", DrQv2()),
        ),
        envs=("thespis.papers.adaptive_rr.envs:PixelReacher",),
        steps=1_000_000,
        claims=(Superiority("adaptive", "low", learning_curve_auc()),),
        max_looks=1,
    ),
)
