"""Agent learning via early experience: what follows on one's own attempts is learnt before an expert is imitated."""

from __future__ import annotations

from typing import Any

from thespis.core.feeds import LoggedEpisodes
from thespis.core.records import Citation
from thespis.evidence.claims import Better
from thespis.evidence.measures import final_return
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.learners.pupils import AnswersFirst
from thespis.methods.language.sft import SFT

_MODEL: dict[str, Any] = {"model": "blank", "layers": 2, "width": 64, "learning_rate": 1e-3}
_UPDATES, _FIRST = 600, 300
_SHOWN, _EACH, _BATCH = 8, 64, 8
_EXPERT = {"data": f"demonstrations:{_SHOWN}"}
_FORETELLING = AnswersFirst(_FIRST)
_RETURN = final_return("greedy")

PAPER = Paper(
    id="early-experience",
    name="Early Experience",
    citation=Citation("Agent Learning via Early Experience", "Zhang et al.", 2025, "arXiv:2510.08558"),
    family="imitation",
    does="Between imitation and learning from rewards: at states of an expert other actions are tried, and the policy "
    "itself first learns to foretell what the world answers to them, then to imitate the expert.",
    claim="Foretelling one's own attempts, then imitating, succeeds more often than imitation alone with as many "
    "updates, in eight environments, and generalises further.",
    parts=(
        "thespis.learners.pupils:AnswersFirst",
        "thespis.branches:branched",
        "thespis.methods.language.sft:SFT",
    ),
    use="thespis train sft --data branches:8x64 --env thespis.evidence.listening:KNOWN --steps 600 --set "
    "learnt=AnswersFirst",
    miniature=Trial(
        arms=(
            Arm(
                "early experience",
                SFT(**_MODEL, learnt=_FORETELLING, feed=LoggedEpisodes(batch=2 * _BATCH)),
                {"data": f"branches:{_SHOWN}x{_EACH}"},
            ),
            Arm("imitation", SFT(**_MODEL, feed=LoggedEpisodes(batch=_BATCH)), _EXPERT),
            Arm(
                "the expert foretold",
                SFT(**_MODEL, learnt=_FORETELLING, feed=LoggedEpisodes(batch=_BATCH)),
                _EXPERT,
            ),
        ),
        envs=("thespis.evidence.listening:KNOWN",),
        steps=_UPDATES,
        claims=(
            Better("early experience", "imitation", _RETURN),
            Better("early experience", "the expert foretold", _RETURN),
        ),
        batch=5,
        looks=2,
        episodes=200,
    ),
    remarks="A decoder of two layers that knows no word before it learns stands for instruction-tuned models of 3B to "
    "8B, and a maze of sixteen cells, told in words, for eight environments. So what is tried at states of the "
    "expert is any open way, not what the model itself proposes: sixty-four branches of each conversation, at turns "
    "drawn uniformly, where the paper tries several actions at every state. What the world has answered to the "
    "expert is foretold, too, and the third arm foretells nothing else. All arms make as many updates, half of them "
    "for foretelling; batches of the first are twice as large, as half of its conversations are branches, so that "
    "all imitate as many of the expert's conversations in an update. Self-reflection, the paper's second way, needs "
    "a model that can give reasons and is not tried, nor are worlds other than those learnt in, and learning from "
    "rewards afterwards. Of the paper its abstract and reports of others were read. Sizes were set by looks at single "
    "seeds. "
    "What is not shown: that foretelling one's own attempts helps; its mean is the largest in both "
    "comparisons (0.549 against 0.516 and 0.511), which ten seeds of each do not decide. Second look: which "
    "ids are learnt when, and that branches are what the world answers, agree with rules on strings. Likely "
    "cause: what a maze answers to a step is told by its name and the cell one stands in, and eight "
    "conversations of the expert show most cells already, so there is little more to know of the world; and "
    "half of the updates for it are taken from imitation.",
)
