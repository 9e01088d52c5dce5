"""Where a feedback can be used: one that reads dialogues alone, or none at all, is refused elsewhere at the start."""

from __future__ import annotations

from thespis.core.contracts import Feedback, LimitsEnvKind
from thespis.core.errors import UserError
from thespis.core.feeds import Feed
from thespis.core.records import EnvSpec
from thespis.core.spaces import Text, leaf_spaces
from thespis.feedback.frozen import feedback_parts

TEXT, CONTROL = "text", "control"


def env_kind(spec: EnvSpec) -> str:
    """Whether an environment is ``text`` or ``control``: whether there is text in its observations or actions."""
    leaves = (*leaf_spaces(spec.observation_space), *leaf_spaces(spec.action_space))
    return TEXT if any(isinstance(space, Text) for space in leaves) else CONTROL


def check_env_kind(feedback: Feedback, spec: EnvSpec) -> None:
    """Check that a feedback can score an environment's steps, as far as its kind says so.

    Raises:
        UserError: if it is for another kind of environment, or for dialogues of one agent and there are many agents.
    """
    if not isinstance(feedback, LimitsEnvKind):
        return
    if feedback.env_kind != env_kind(spec):
        reads = {TEXT: "scores dialogues", CONTROL: "reads boxes and choices"}[feedback.env_kind]
        raise UserError(
            f"the feedback {feedback.name} {reads}, and {spec.name} is a {env_kind(spec)} environment: "
            "thespis list feedback says what works where"
        )
    if feedback.env_kind == TEXT and spec.groups:
        raise UserError(f"the feedback {feedback.name} scores dialogues of one agent, and {spec.name} has many agents")


def check_feedback_fits(feedback: Feedback, feed: Feed, spec: EnvSpec) -> None:
    """Check that all parts of a feedback can score an environment's steps in the batches of a method's feed.

    Raises:
        UserError: as :func:`check_env_kind`, and for dialogues where the feed's batches hold parts of them.
    """
    for part in feedback_parts(feedback):
        check_env_kind(part, spec)
        name, is_text = part.name, isinstance(part, LimitsEnvKind) and part.env_kind == TEXT
        if is_text and not feed.whole_episodes:
            raise UserError(
                f"the feedback {name} scores whole dialogues, and the method learns from parts of them "
                f"({type(feed).__name__}): use one that learns from whole dialogues, such as grpo"
            )
