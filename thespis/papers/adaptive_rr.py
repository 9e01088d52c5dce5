"""A replay ratio that rises once the critic's plasticity has recovered."""

from __future__ import annotations

import dataclasses

from thespis.core.feeds import Replay
from thespis.core.records import Citation
from thespis.evidence.claims import Better
from thespis.evidence.measures import final_return, learning_area
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.learners.augmentation import AsSeen, RandomShift
from thespis.learners.paces import Adaptive
from thespis.methods.online.drq import DrQ

_STEPS = 8_000
_LOW = DrQ(
    learning_rate=1e-3,
    discount=0.97,
    hidden=(64, 64),
    trunk=32,
    noise_updates=_STEPS / 4,
    augmentation=RandomShift(1),
    feed=Replay(batch=32, warmup=1_000, every=2, length=3),
)
_MORE = dataclasses.replace(_LOW.feed, updates=4)
_LATER = {"noise_updates": _STEPS * 1.0}

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
    does="An actor-critic from images whose updates per step are few until the share of the critic's active units "
    "has come to rest, and many from then on.",
    claim="Augmentation is essential; a ratio that adapts learns more from as many steps than a low or a high one "
    "that stays.",
    parts=(
        "thespis.learners.paces:Adaptive",
        "thespis.learners.augmentation:RandomShift",
        "thespis.methods.online.drq:DrQ",
        "thespis.envs.compiled.pixel_reacher:PixelReacher",
    ),
    use="thespis train drq-v2 --env thespis.envs.compiled.pixel_reacher:PixelReacher "
    "--set pace=Adaptive feed.updates=4",
    miniature=Trial(
        arms=(
            Arm("adaptive", dataclasses.replace(_LOW, pace=Adaptive(every=2_000, over=200), feed=_MORE)),
            Arm("low", _LOW),
            Arm("high", dataclasses.replace(_LOW, feed=_MORE, **_LATER)),
            Arm("low, as seen", dataclasses.replace(_LOW, augmentation=AsSeen())),
        ),
        envs=("thespis.envs.compiled.pixel_reacher:PixelReacher",),
        steps=_STEPS,
        claims=(
            Better("adaptive", "low", final_return()),
            Better("adaptive", "high", final_return()),
            Better("adaptive", "low", learning_area()),
            Better("adaptive", "high", learning_area()),
            Better("low", "low, as seen", final_return()),
        ),
    ),
    remarks="A reacher of twelve by twelve pixels stands for the DeepMind Control Suite, 8,000 steps for two "
    "million. The ratio goes from 0.5 to 2, as in the paper; the critic is looked at seven times, in the paper's "
    "runs about forty times. Noise falls over somewhat more than half of the updates that an arm makes, the "
    "adaptive one's at its first ratio. Resets, ReDo and which module loses plasticity are not tried. In ten seeds "
    "the high ratio ends highest, the adaptive one between it and the low one, and none is told from another. What "
    "adapting is to save is a critic that many early updates have ruined, and nothing shows that: in so few steps "
    "of so small a world more updates are simply more learning, and nobody has learnt much. Augmentation, by one "
    "pixel of twelve, is ahead of none by three points of eighty, which is not decided either.",
    full=Trial(
        arms=(
            Arm("adaptive", DrQ(pace=Adaptive(), feed=Replay(batch=256, warmup=2_000, every=2, updates=4, length=3))),
            Arm("low", DrQ()),
        ),
        envs=("thespis.envs.compiled.pixel_reacher:PixelReacher",),
        steps=1_000_000,
        claims=(Better("adaptive", "low", learning_area()),),
        looks=1,
    ),
)
