"""Tasks of commands: each response is one word, followed by ``<end>``, and a critique of one is a verdict on it.

A critique approves a command, ``yes <end>``, or objects and may suggest another, ``no undo <end>``. A task that says
which command is right in a state gets a demonstrator of commands, critiques and revisions from :class:`CommandTask`,
and can be the task of a conversation with a critic of actions
(:class:`~thespis.envs.text.pre_act.PreActConversation`).
"""

from __future__ import annotations

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key, PyTree

from thespis.core.spaces import END
from thespis.envs.text.task import TaskSpec, cut_at_eos, pack_tokens
from thespis.runtime.keys import fold

APPROVAL, OBJECTION = "yes", "no"


def approval_judgment(spec: TaskSpec, critique: Int[Array, " critique"]) -> Int[Array, ""]:
    """What the first word of a critique says of an action: 1 for ``yes``, 0 for ``no``, -1 for neither."""
    words, _ = cut_at_eos(spec, critique)
    is_approval, is_objection = (words[0] == spec.encode_word(word) for word in (APPROVAL, OBJECTION))
    return jnp.where(is_approval, 1, jnp.where(is_objection, 0, -1))


class CommandTask(eqx.Module):
    """Task of commands, with a demonstrator that acts, criticizes and revises.

    ``demonstrator_noise``: the share of the demonstrator's commands that are random. ``revision_noise``: the same after
    a critique. ``critic_noise``: the share of its critiques that are random; of the others a share ``leniency``
    approves, whatever the command is, and of the objections that remain a share ``suggestion_noise`` suggests a random
    command.
    """

    demonstrator_noise: float = 0.3
    revision_noise: float = 0.0
    critic_noise: float = 0.0
    leniency: float = 0.0
    suggestion_noise: float = 0.0

    @property
    @abc.abstractmethod
    def task_spec(self) -> TaskSpec:
        """Specification of the task: its vocabulary has the commands one after another, ``yes`` and ``no``."""

    @property
    @abc.abstractmethod
    def commands(self) -> tuple[str, ...]:
        """The words that are commands, in the order of the vocabulary."""

    @abc.abstractmethod
    def right_command(self, state: PyTree) -> Int[Array, ""]:
        """Index of a command that gets on in a state."""

    @abc.abstractmethod
    def random_command(self, state: PyTree, key: Key[Array, ""]) -> Int[Array, ""]:
        """Index of a random command: what the noise of the demonstrator is."""

    def is_right_action(self, state: PyTree, response: Int[Array, " response"]) -> Bool[Array, ""]:
        """Whether a response is the right command."""
        return self.read_command(response) == self.right_command(state)

    def read_command(self, response: Int[Array, " response"]) -> Int[Array, ""]:
        """Index of the command that a response is; -1 if it is none."""
        words, length = cut_at_eos(self.task_spec, response)
        return jnp.where(length == 1, self._command_of(words[0]), -1)

    def write(self, command: Int[Array, ""]) -> Int[Array, " response"]:
        """The response that is a command."""
        spec = self.task_spec
        return pack_tokens(spec.max_response_tokens, self._first_token + command, spec.encode(END))

    def critique_judgment(self, critique: Int[Array, " critique"]) -> Int[Array, ""]:
        """What a critique says of a command: 1 that it is right, 0 that it is wrong, -1 if neither."""
        return approval_judgment(self.task_spec, critique)

    def suggested_command(self, critique: Int[Array, " critique"]) -> Int[Array, ""]:
        """Index of the command that an objection suggests; -1 if there is none."""
        words, _ = cut_at_eos(self.task_spec, critique)
        return jnp.where(self.critique_judgment(critique) == 0, self._command_of(words[1]), -1)

    def demonstrator_response(self, state: PyTree, key: Key[Array, ""]) -> Int[Array, " response"]:
        """The right command, at times a random one."""
        return self.write(self._noisy_command(state, self.demonstrator_noise, key))

    def demonstrator_critique(
        self, state: PyTree, answer: Int[Array, " response"], key: Key[Array, ""]
    ) -> Int[Array, " critique"]:
        """Approval of a right command, or an objection with one; at times lenient, at times random."""
        spec = self.task_spec
        is_noise = jax.random.uniform(fold(key, "noise")) < self.critic_noise
        is_lenient = jax.random.uniform(fold(key, "leniency")) < self.leniency
        is_approval = jnp.where(
            is_noise, jax.random.bernoulli(fold(key, "verdict")), is_lenient | self.is_right_action(state, answer)
        )
        noise = jnp.where(is_noise, 1.0, self.suggestion_noise)
        suggestion = self._noisy_command(state, noise, fold(key, "suggestion"))
        verdict = jnp.where(is_approval, spec.encode_word(APPROVAL), spec.encode_word(OBJECTION))
        word = jnp.where(is_approval, -1, self._first_token + suggestion)
        return pack_tokens(3, verdict, word, spec.encode(END))

    def demonstrator_revision(
        self, state: PyTree, answer: Int[Array, " response"], critique: Int[Array, " critique"], key: Key[Array, ""]
    ) -> Int[Array, " response"]:
        """The suggested command; without a suggestion a right one; at times a random one."""
        suggestion = self.suggested_command(critique)
        is_noise = jax.random.uniform(fold(key, "wander")) < self.revision_noise
        follows = (suggestion >= 0) & ~is_noise
        noisy = self._noisy_command(state, is_noise.astype("float32"), fold(key, "random"))
        return self.write(jnp.where(follows, suggestion, noisy))

    def _noisy_command(self, state: PyTree, noise: float | Array, key: Key[Array, ""]) -> Int[Array, ""]:
        """The right command, or in a share ``noise`` a random one."""
        is_noise = jax.random.uniform(fold(key, "wander")) < noise
        return jnp.where(is_noise, self.random_command(state, key), self.right_command(state))

    def _command_of(self, token: Int[Array, ""]) -> Int[Array, ""]:
        """Index of the command of a token; -1 if it is none."""
        command = token - self._first_token
        return jnp.where((command >= 0) & (command < len(self.commands)), command, -1)

    @property
    def _first_token(self) -> int:
        """The token of the first command."""
        return self.task_spec.encode_word(self.commands[0])
