"""Conversation of an actor and a critic of its actions: each is criticized before it is executed.

:class:`PreActConversation` makes a conversation of a task of several turns. The actor proposes an action. The critic
reads what the environment has said, and the proposal; it approves, or objects and may suggest something else. What it
approves is executed. After an objection the actor reads the critique and proposes again. So mistakes that cannot be
undone can be prevented, which a critique of a finished answer cannot do.

Source: Look Before You Leap (GUI-Critic-R1; Wanyan et al., 2025) for the critic before the action, and for rewards of
verdicts and suggestions.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.errors import UserError
from thespis.envs.rollout import select_rows
from thespis.envs.text.conversation import (
    ConversationSpec,
    ConversationStep,
    EpisodeShare,
    SeatSpec,
    pad_tokens,
    without_cue,
)
from thespis.envs.text.critique import (
    CRITIC,
    MAX_HARM,
    MIN_RIGHT_JUDGMENTS,
    CriticDemonstrator,
    HasCritiqueJudgments,
)
from thespis.envs.text.retry import ACTOR
from thespis.envs.text.task import RESPONSE_CUE, Task, changed_fields, cut_at_eos, pack_tokens
from thespis.runtime.keys import fold

RIGHT_PROPOSALS, RIGHT_ACTIONS = "proposals that are right", "executed actions that are right"
RIGHT_VERDICTS = "verdicts on proposals that are right"
REPAIRS = "rejected wrong proposals that are right the next time"
SUCCEEDS = "episodes that succeed"


@runtime_checkable
class HasActionVerdicts(HasCritiqueJudgments, Protocol):
    """Task that knows which actions are right, and can tell whether a critique calls one right or wrong."""

    def is_right_action(self, state: PyTree, response: Int[Array, " response"]) -> Bool[Array, ""]:
        """Whether a response is right in a state."""
        ...


class PreActState(eqx.Module):
    """State of a conversation: that of the task, what the critic has not read yet, the proposal, and counts.

    ``num_objections``: objections to proposals of this action so far. ``counts``: proposals by whether they are right
    (first index) and what the critic says of them (second index: 0 wrong, 1 right, 2 neither). ``num_repaired``: wrong
    proposals that were followed by a right one after an objection. ``num_executed``: executed actions, wrong and right.
    """

    task_state: PyTree
    unread: Int[Array, "*episodes message"]
    proposal: Int[Array, "*episodes response"]
    critique: Int[Array, "*episodes critique"]
    is_right: Bool[Array, "*episodes"]
    num_objections: Int[Array, "*episodes"]
    counts: Int[Array, "*episodes 2 3"]
    num_repaired: Int[Array, "*episodes"]
    num_executed: Int[Array, "*episodes 2"]


class PreActConversation(eqx.Module):
    """Conversation of an actor and a critic that reads each action of a task before it is executed.

    An action is executed unless the critic says that it is wrong; after ``max_objections`` objections in a row it is
    executed whatever the critic says. ``max_proposals``: proposals that an episode allows (0: as many as the task
    allows turns); one that is not executed counts, too. The actor earns the task's rewards. The critic earns
    ``verdict_reward`` if it says rightly whether the proposal is right; ``suggestion_reward`` if a right proposal
    follows its objection to a wrong one, and as much is taken from it if a wrong one follows its objection to a right
    one; and ``outcome_reward`` times the task's rewards. ``max_critique_tokens``: tokens of a critique, its end token
    included.
    """

    task: Task
    verdict_reward: float = 1.0
    suggestion_reward: float = 0.0
    outcome_reward: float = 0.0
    max_objections: int = eqx.field(static=True, default=1)
    max_proposals: int = eqx.field(static=True, default=0)
    max_critique_tokens: int = eqx.field(static=True, default=3)

    def __check_init__(self):
        """Raise ``ValueError`` for a task that cannot tell which actions are right."""
        if not isinstance(self.task, HasActionVerdicts):
            raise ValueError(
                f"{self.task.task_spec.name} does not say which actions are right: it needs is_right_action and "
                "critique_judgment"
            )
        if self.max_objections < 0 or self.max_proposals < 0:
            raise ValueError("max_objections and max_proposals: at least 0")

    @property
    def conversation_spec(self) -> ConversationSpec:
        """The words of the task, actor and critic."""
        spec = self.task.task_spec
        settings = changed_fields(self.task) + changed_fields(self, ignored=("task",))
        to_actor = max(spec.max_message_tokens, self.max_critique_tokens)
        to_critic = spec.max_message_tokens + spec.max_response_tokens
        return ConversationSpec(
            f"text:checked-{spec.name.removeprefix('text:')}{settings}",
            spec.vocabulary,
            (
                SeatSpec(ACTOR, spec.max_opening_tokens, to_actor, spec.max_response_tokens),
                SeatSpec(CRITIC, spec.max_opening_tokens, to_critic, self.max_critique_tokens),
            ),
            (ACTOR, CRITIC) * (self.max_proposals or spec.max_turns),
        )

    def init(self, key: Key[Array, ""]) -> tuple[PreActState, dict[str, Int[Array, " opening"]]]:
        """The first message of the task for both; the critic is not asked yet."""
        spec = self.task.task_spec
        task_state, opening = self.task.init(key)
        zero = jnp.zeros((), "int32")
        state = PreActState(
            task_state,
            jnp.full(spec.max_message_tokens, -1, "int32"),
            jnp.full(spec.max_response_tokens, -1, "int32"),
            jnp.full(self.max_critique_tokens, -1, "int32"),
            jnp.zeros((), bool),
            zero,
            jnp.zeros((2, 3), "int32"),
            zero,
            jnp.zeros(2, "int32"),
        )
        to_critic = pack_tokens(spec.max_opening_tokens, without_cue(spec, opening))
        return state, {ACTOR: opening.astype("int32"), CRITIC: to_critic}

    def step(
        self, state: PreActState, turn: Int[Array, ""], response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[PreActState, ConversationStep]:
        """A proposal goes to the critic; a critique to the actor, or its proposal is executed."""
        proposed, to_critic, suggestion_reward = self._propose(state, response)
        criticized, after, critic_reward = self._criticize(state, response, fold(key, "task"))
        is_proposal = turn % 2 == 0
        rewards = {
            ACTOR: jnp.where(is_proposal, 0.0, after.rewards[ACTOR]),
            CRITIC: jnp.where(is_proposal, suggestion_reward, critic_reward),
        }
        messages = {
            ACTOR: jnp.where(is_proposal, -1, after.messages[ACTOR]),
            CRITIC: jnp.where(is_proposal, to_critic, -1),
        }
        next_state = select_rows(is_proposal, proposed, criticized)
        return next_state, ConversationStep(messages, rewards, ~is_proposal & after.terminated)

    def _propose(
        self, state: PreActState, response: Int[Array, " response"]
    ) -> tuple[PreActState, Int[Array, " message"], Float[Array, ""]]:
        """The state with a proposal, what the critic reads, and its reward for what it suggested before."""
        spec, task = self.task.task_spec, self._judged_task
        proposal = pad_tokens(response, spec.max_response_tokens)
        is_right = task.is_right_action(state.task_state, proposal)
        after_objection = state.num_objections > 0
        gain = is_right.astype("float32") - state.is_right.astype("float32")
        unread = jnp.where(after_objection, -1, state.unread)
        to_critic = pack_tokens(
            spec.max_message_tokens + spec.max_response_tokens,
            without_cue(spec, unread),
            cut_at_eos(spec, proposal)[0],
            spec.encode(RESPONSE_CUE),
        )
        next_state = eqx.tree_at(
            lambda s: (s.proposal, s.is_right, s.num_repaired),
            state,
            (proposal, is_right, state.num_repaired + (after_objection & ~state.is_right & is_right)),
        )
        return next_state, to_critic, jnp.where(after_objection, self.suggestion_reward * gain, 0.0)

    def _criticize(
        self, state: PreActState, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[PreActState, ConversationStep, Float[Array, ""]]:
        """The state after a critique, what the actor reads and earns, and what the critic earns."""
        spec = self.task.task_spec
        critique = pad_tokens(response, self.max_critique_tokens)
        judgment = self._judged_task.critique_judgment(critique)
        objects = (judgment == 0) & (state.num_objections < self.max_objections)
        task_state, result = self.task.step(state.task_state, state.proposal, key)
        size = max(spec.max_message_tokens, self.max_critique_tokens)
        objection = pack_tokens(size, cut_at_eos(spec, critique)[0], spec.encode(RESPONSE_CUE))
        message = jnp.where(objects, objection, pad_tokens(result.message.astype("int32"), size))
        reward = jnp.where(objects, 0.0, result.reward)
        right = state.is_right.astype("int32")
        next_state = PreActState(
            select_rows(objects, state.task_state, task_state),
            jnp.where(objects, -1, pad_tokens(result.message.astype("int32"), spec.max_message_tokens)),
            state.proposal,
            critique,
            state.is_right,
            jnp.where(objects, state.num_objections + 1, 0),
            state.counts.at[right, jnp.where(judgment < 0, 2, judgment)].add(1),
            state.num_repaired,
            state.num_executed.at[right].add(1 - objects.astype("int32")),
        )
        earned = self.verdict_reward * (judgment == right) + self.outcome_reward * reward
        step = ConversationStep({ACTOR: message}, {ACTOR: reward}, result.terminated & ~objects)
        return next_state, step, earned.astype("float32")

    def report_card(self, state: PreActState, rewards: dict[str, Float[Array, " turn"]]) -> tuple[EpisodeShare, ...]:
        """Which proposals are right, what the critic says of them, and what is executed; all but the last by action."""
        counts, always = state.counts, jnp.ones((), bool)
        wrong, right = counts.sum(axis=1)
        rejected = counts[:, 0]
        return (
            EpisodeShare(RIGHT_PROPOSALS, right, wrong + right),
            EpisodeShare(RIGHT_ACTIONS, state.num_executed[1], state.num_executed.sum()),
            EpisodeShare(RIGHT_VERDICTS, counts[0, 0] + counts[1, 1], wrong + right),
            EpisodeShare("wrong proposals rejected (recall)", rejected[0], wrong),
            EpisodeShare("right proposals rejected (false alarms)", rejected[1], right),
            EpisodeShare("rejected proposals that are wrong (precision)", rejected[0], rejected.sum()),
            EpisodeShare(REPAIRS, state.num_repaired, rejected[0]),
            EpisodeShare(SUCCEEDS, rewards[ACTOR].sum() >= 1.0, always),
        )

    def report_warnings(self, shares: dict[str, float]) -> list[str]:
        """That the critic does harm, or says the opposite of the truth."""
        before, after, verdicts = shares[RIGHT_PROPOSALS], shares[RIGHT_ACTIONS], shares[RIGHT_VERDICTS]
        warnings = []
        if verdicts < MIN_RIGHT_JUDGMENTS:
            warnings += [f"The critic lies: {verdicts:.0%} of its verdicts are right, fewer than those of a coin."]
        if after < before - MAX_HARM:
            warnings += [f"Critiques do harm: {before:.0%} of the proposals are right, and {after:.0%} of the actions."]
        return warnings

    def demonstrator_response(
        self, state: PreActState, turn: Int[Array, ""], key: Key[Array, ""]
    ) -> Int[Array, " response"]:
        """The task's demonstrator in both seats. Raises ``UserError`` if it cannot criticize."""
        spec, task = self.task.task_spec, self.task
        if not isinstance(task, CriticDemonstrator):
            raise UserError(f"the demonstrator of {spec.name} gives no critiques: --model blank or a checkpoint")
        width = max(spec.max_response_tokens, self.max_critique_tokens)
        proposal = task.demonstrator_response(state.task_state, fold(key, "answer"))
        critique = task.demonstrator_critique(state.task_state, state.proposal, fold(key, "critique"))
        revision = task.demonstrator_revision(state.task_state, state.proposal, state.critique, fold(key, "revision"))
        proposal, critique, revision = (pad_tokens(tokens, width) for tokens in (proposal, critique, revision))
        action = jnp.where(state.num_objections > 0, revision, proposal)
        return jnp.where(turn % 2 == 0, action, critique).astype("int32")

    @property
    def _judged_task(self) -> HasActionVerdicts:
        """The task, which can tell what is right."""
        assert isinstance(self.task, HasActionVerdicts)
        return self.task
