"""Critiques of single commands to a form, with annotations: the data that a critic of actions is trained on.

``want lamp post oslo cash full lamp post ask rome >`` states the values that are wanted, those that are filled in, and
a command of which a critique is asked, before it is executed. A critique is a verdict and the command to give:
``no oslo <end>``, or ``yes rome <end>`` where the command is right. All its rewards follow from an annotation: whether
the command is right, and the right one.

Source: Look Before You Leap (GUI-Critic-R1; Wanyan et al., 2025), equation 3 and the reward after it.
Differs from the paper: forms are in any state to which an actor that errs can bring them, and not only on the way of
demonstrations; suggestions are single words, which are equal or not.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from thespis.core.spaces import END
from thespis.envs.text.commands import APPROVAL, OBJECTION
from thespis.envs.text.form import COMMANDS, FIELDS, Form, FormState
from thespis.envs.text.task import RESPONSE_CUE, TaskSpec, TaskStep, cut_at_eos, pack_tokens
from thespis.runtime.keys import fold

FILLED, PROPOSED = "full", "ask"
"""Words before the values that are filled in, and before the command."""


class ReviewState(eqx.Module):
    """A form, the proposed command, and the command that the annotation suggests, both by their indices."""

    form: FormState
    proposal: Int[Array, "*episodes"]
    annotation: Int[Array, "*episodes"]


class CommandReview(eqx.Module):
    """One critique of a command to a form, with rewards for its format, its verdict and its suggestion.

    ``form``: its demonstrator brings forms into their states, and gives the commands. The reward is ``format_weight``
    for a verdict with one command, ``suggestion_weight`` for the annotated command, and what remains to 1 for a verdict
    that is right. ``random_suggestions``: whether annotated commands are random, so that this reward says nothing.
    ``max_commands_before``: commands that fill in a form before the critique, 0 to as many.
    """

    form: Form = Form()
    format_weight: float = 0.1
    suggestion_weight: float = 0.1
    random_suggestions: bool = eqx.field(static=True, default=False)
    max_commands_before: int = eqx.field(static=True, default=6)

    @property
    def task_spec(self) -> TaskSpec:
        """The form's vocabulary; one critique of three tokens."""
        return TaskSpec(
            "text:command-review",
            self.form.task_spec.vocabulary,
            1,
            max_response_tokens=3,
            max_opening_tokens=2 * min(self.form.num_fields, len(FIELDS) - 1) + 5,
            max_message_tokens=1,
        )

    def init(self, key: Key[Array, ""]) -> tuple[ReviewState, Int[Array, " opening"]]:
        """A form after some commands, another command, and the words for both."""
        start, _ = self.form.init(fold(key, "form"))
        count = jax.random.randint(fold(key, "count"), (), 0, self.max_commands_before + 1)

        def fill(entries: Int[Array, " field"], i: Int[Array, ""]) -> tuple[Int[Array, " field"], None]:
            command = self._command(FormState(start.wanted, entries), fold(key, "before", i))
            return jnp.where(i < count, self.form.execute(entries, command), entries), None

        entries, _ = jax.lax.scan(fill, start.entries, jnp.arange(self.max_commands_before))
        form = FormState(start.wanted, entries)
        proposal = self._command(form, fold(key, "proposal"))
        annotation = self.form.right_command(form)
        if self.random_suggestions:
            annotation = jax.random.randint(fold(key, "annotation"), (), 0, len(COMMANDS))
        return ReviewState(form, proposal, annotation), self.opening(form, proposal)

    def opening(self, form: FormState, proposal: Int[Array, ""]) -> Int[Array, " opening"]:
        """The words for a form and a command to it."""
        spec = self.task_spec
        first = spec.encode_word(COMMANDS[0])
        wanted, filled = (jnp.where(x >= 0, first + x, -1) for x in (form.wanted, form.entries))
        command = jnp.where(proposal >= 0, first + proposal, -1)
        words = (spec.encode("want"), wanted, spec.encode(FILLED), filled, spec.encode(PROPOSED), command)
        return pack_tokens(spec.max_opening_tokens, *words, spec.encode(RESPONSE_CUE))

    def read_opening(self, tokens: Int[Array, " length"]) -> tuple[FormState, Int[Array, ""]]:
        """The form and the command that such words are about."""
        spec = self.task_spec
        command = tokens - spec.encode_word(COMMANDS[0])
        command = jnp.where((command >= 0) & (command < len(COMMANDS)), command, -1)
        part = sum(jnp.cumsum(tokens == spec.encode_word(word)) for word in (FILLED, PROPOSED))
        is_field = jax.vmap(self.form.field_of)(command) == jnp.arange(len(FIELDS))[:, None]
        wanted, entries = (jnp.where(is_field & (part == i), command, -1).max(axis=1) for i in range(2))
        return FormState(wanted, entries), jnp.where(part == 2, command, -1).max()

    def step(
        self, state: ReviewState, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[ReviewState, TaskStep]:
        """The weighted sum of the three rewards; the episode ends."""
        suggestion = self.suggested_command(response)
        is_right = state.proposal == self.form.right_command(state.form)
        judges_rightly = self.form.critique_judgment(response) == is_right.astype("int32")
        accuracy_weight = 1.0 - self.format_weight - self.suggestion_weight
        reward = (
            self.format_weight * self.has_format(response)
            + self.suggestion_weight * (suggestion == state.annotation)
            + accuracy_weight * judges_rightly
        )
        return state, TaskStep(jnp.full(1, -1), jnp.asarray(reward, "float32"), jnp.ones((), bool))

    def has_format(self, critique: Int[Array, " critique"]) -> Bool[Array, ""]:
        """Whether a critique is a verdict and a command."""
        return (self.form.critique_judgment(critique) >= 0) & (self.suggested_command(critique) >= 0)

    def suggested_command(self, critique: Int[Array, " critique"]) -> Int[Array, ""]:
        """Index of the command after the verdict; -1 where a critique has another form."""
        words, length = cut_at_eos(self.task_spec, critique)
        command = words[1] - self.task_spec.encode_word(COMMANDS[0])
        return jnp.where((length == 2) & (command >= 0) & (command < len(COMMANDS)), command, -1)

    def write(self, approves: Bool[Array, ""], suggestion: Int[Array, ""]) -> Int[Array, " critique"]:
        """The critique of a verdict and a suggestion."""
        spec = self.task_spec
        verdict = jnp.where(approves, spec.encode_word(APPROVAL), spec.encode_word(OBJECTION))
        return pack_tokens(3, verdict, spec.encode_word(COMMANDS[0]) + suggestion, spec.encode(END))

    def demonstrator_response(self, state: ReviewState, key: Key[Array, ""]) -> Int[Array, " response"]:
        """The annotation: the right verdict, and the right command."""
        right = self.form.right_command(state.form)
        return self.write(state.proposal == right, right)

    def _command(self, form: FormState, key: Key[Array, ""]) -> Int[Array, ""]:
        """A command of the form's demonstrator."""
        return self.form.read_command(self.form.demonstrator_response(form, key))
