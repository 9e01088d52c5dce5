"""Bench of irreversible actions: an actor that presses wrong buttons, and a critic of commands before their execution.

Forms that grow (:mod:`thespis.envs.text.form`). The scripted actor's commands are often wrong, and a form that is sent
too early or thrown away is lost. A critic learns from single annotated commands
(:mod:`thespis.papers.gui_critic_r1.envs`), and then checks the actor's commands before they are executed
(:mod:`thespis.envs.text.pre_act`): it approves, or objects and suggests another, and the actor does as it is told.
Critics begin with a short supervised lesson, after which verdicts and suggestions are often wrong.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
from jaxtyping import Array, Int, Key

from thespis.data.feeds import Episodes
from thespis.envs.text.form import COMMANDS, Form
from thespis.envs.text.task import TextEnv
from thespis.evidence.bench import Bench, Headroom, Symptom
from thespis.evidence.comparisons import Comparison
from thespis.evidence.measures import learning_curve_auc
from thespis.evidence.paired_verdict import SHORT_LOOKS
from thespis.evidence.paper import Arm
from thespis.learners.language.policy_losses import K3
from thespis.learners.language.scripted_seat import ScriptedSeat
from thespis.methods.language.grpo import GRPO
from thespis.papers.gui_critic_r1.envs import CommandReview
from thespis.papers.gui_critic_r1.measures import CriticMeasures
from thespis.papers.gui_critic_r1.method import AnnotatedCritic

FORM = Form(num_fields=3, demonstrator_noise=0.4)
"""Two fifths of the actor's commands are random."""
_REVIEW = CommandReview(FORM, format_weight=0.2, suggestion_weight=0.0)
VERDICTS = TextEnv(_REVIEW)
"""Critiques are rewarded for their format and their verdict."""
SUGGESTIONS = TextEnv(dataclasses.replace(_REVIEW, format_weight=0.1, suggestion_weight=0.1))
"""They are rewarded for their suggestion, too."""
RANDOM_SUGGESTIONS = TextEnv(
    dataclasses.replace(_REVIEW, format_weight=0.1, suggestion_weight=0.1, random_suggestions=True)
)
"""This reward is for naming a command that was drawn at random."""
VERDICTS_ENV, SUGGESTIONS_ENV, RANDOM_SUGGESTIONS_ENV = (
    f"{__name__}:{name}" for name in ("VERDICTS", "SUGGESTIONS", "RANDOM_SUGGESTIONS")
)
MEASURES = CriticMeasures(_REVIEW, max_proposals=10)
SUCCESS, IRREVERSIBLE = MEASURES.success(), MEASURES.irreversible_errors()
VERDICT_ACCURACY, SUGGESTION_ACCURACY = MEASURES.verdict_accuracy(), MEASURES.suggestion_accuracy()
NUM_ROWS, NUM_UPDATES = 48, 400
STEPS = NUM_UPDATES * NUM_ROWS
NUM_ANNOTATIONS = STEPS // 6
"""Commands of which GRPO samples groups of critiques."""
MODEL: dict[str, Any] = {
    "model": "tiny",
    "num_layers": 2,
    "hidden_size": 32,
    "num_pretrain_steps": 1_000,
    "num_pretrain_dialogues": 4_096,
}
FEED = Episodes(max_steps=1, group_size=6, num_envs=NUM_ROWS)


class CommandCritic(ScriptedSeat):
    """Scripted critic of single commands: critiques are exact, random or approvals, and it never learns."""

    critiques: Literal["exact", "random", "approvals"] = eqx.field(static=True, default="exact")
    feed: Episodes = eqx.field(static=True, default=FEED, kw_only=True)

    name: ClassVar[str] = "command-critic"
    learns: ClassVar[bool] = True  # so that a run can consist of it alone

    def respond(self, transcripts: Int[Array, "row length"], key: Key[Array, ""]) -> Int[Array, "row 3"]:
        """A critique of the command in each transcript."""
        form, proposal = jax.vmap(_REVIEW.read_opening)(transcripts)
        if self.critiques == "approvals":
            return jax.vmap(_REVIEW.write)(proposal >= -1, proposal)
        if self.critiques == "random":
            verdict, suggestion = jax.random.split(key)
            approves = jax.random.bernoulli(verdict, shape=proposal.shape)
            return jax.vmap(_REVIEW.write)(approves, jax.random.randint(suggestion, proposal.shape, 0, len(COMMANDS)))
        right = jax.vmap(FORM.right_command)(form)
        return jax.vmap(_REVIEW.write)(proposal == right, right)


TRAINED = GRPO(**MODEL, feed=FEED, minibatch_size=24, learning_rate=3e-4, kl_penalty=K3(0.01))
"""A critic that is trained by GRPO on groups of six critiques of one command."""
AS_PRETRAINED = dataclasses.replace(TRAINED, learning_rate=0.0)
SUPERVISED_ARM = Arm("supervised critic", AS_PRETRAINED, steps=NUM_ROWS)
"""A critic after the supervised lesson."""
VERDICT_ARM = Arm("GRPO on verdicts", TRAINED, env=VERDICTS_ENV)
EXACT_ARM = Arm("exact critiques", CommandCritic("exact"), steps=NUM_ROWS)
RANDOM_ARM = Arm("random critiques", CommandCritic("random"), steps=NUM_ROWS)
NO_CRITIC_ARM = Arm("no critic", CommandCritic("approvals"), steps=NUM_ROWS)
ANNOTATED_ARM = Arm(
    "supervised on as many annotations",
    AnnotatedCritic(
        **MODEL,
        feed=FEED,
        learning_rate=1e-9,
        expert_env=SUGGESTIONS_ENV,
        num_demonstrations=NUM_ANNOTATIONS,
        num_sft_updates=2 * NUM_UPDATES,
        sft_batch_size=32,
    ),
    steps=NUM_ROWS,
)
"""A critic that learns the annotations by which GRPO is rewarded, in as many gradient steps."""
_COPY = dataclasses.replace(TRAINED, learning_rate=3.0003e-4)

BENCH = Bench(
    name="irreversible-actions",
    version=1,
    summary="Forms that grow and buttons that are final: an actor whose commands are often wrong, and a critic that "
    "reads each of them before it is executed, which begins with a short supervised lesson.",
    envs=(SUGGESTIONS_ENV,),
    steps=STEPS,
    num_episodes=20,
    arms=(
        SUPERVISED_ARM,
        VERDICT_ARM,
        Arm("GRPO on verdicts again", _COPY, env=VERDICTS_ENV),
        EXACT_ARM,
        RANDOM_ARM,
    ),
    positive=Comparison(EXACT_ARM.name, RANDOM_ARM.name, SUCCESS),
    negative=Comparison(VERDICT_ARM.name, "GRPO on verdicts again", learning_curve_auc()),
    headroom=Headroom(VERDICT_ARM.name, EXACT_ARM.name, SUCCESS, MEASURES.unchecked_success()),
    symptoms=(Symptom(VERDICT_ARM.name, MEASURES.suggestion_errors(), 0.2),),
    tuning="By exact shares (success, accuracy of verdicts, accuracy of suggestions) on seeds from 1,100 on, GRPO on "
    "verdicts and S-GRPO (verdicts and suggestions) with the same settings. With those of the bench, seeds "
    "1,100 to 1,109: 0.776, 0.914 and 0.719 against 0.874, 0.919 and 0.854. Step sizes, success on seeds 1,100 "
    "to 1,104: 0.785 against 0.860 with 1e-4, 0.79 against 0.88 with 3e-4, 0.652 against 0.750 with 1e-3. After "
    "a lesson of 300 steps, 150 updates with 1e-3: 0.604, 0.810 and 0.327 against 0.638, 0.820 and 0.584; of "
    "600 steps, 400 updates with 3e-4: 0.621, 0.862 and 0.598 against 0.653, 0.855 and 0.673. Four more "
    "settings after these two lessons were tried for S-GRPO alone; none has more than 0.64. The lesson alone "
    "has a success of 0.655, 0.620, 0.834 and 0.822 after 300, 600, 1,000 and 1,500 steps, and 0.871 with 64 "
    "units after 600. Supervision on as many annotations (seeds 1,100 to 1,104): 0.869, 0.91 and 0.907 with "
    "3e-4, 1e-3 and 3e-3; 0.905 with 1e-3 on seeds 1,100 to 1,109. S-GRPO with random suggestions was tried "
    "with the settings of S-GRPO alone: 0.761. Without a critic the success is 0.461.",
    looks=SHORT_LOOKS,
)
