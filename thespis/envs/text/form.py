"""Form task: fill in a form that grows with what is filled in, and press buttons that cannot be taken back.

``want lamp post oslo cash ask item >`` states the values that are wanted, and the field that is asked for. A command is
one word, followed by ``<end>``: a value of that field fills it in, ``undo`` clears the field that was filled in last,
``send`` sends the form and ``erase`` throws it away; both end the episode. Fields appear one after another, and some
only after a certain value: ``city`` after ``post``, ``shop`` after ``pickup``, ``bank`` after ``card``. The response to
a command is the next field, ``ask city >``, or ``full >`` when there is none; to a command that cannot be executed it
is ``nothing happens >``. Only sending the wanted form earns a reward: 1. A wrong value costs two turns, a wrong button
the episode.

The demonstrator knows what to do (:meth:`Form.right_command`), but a share ``demonstrator_noise`` of its commands is
random: half of them a value of the field that is asked for, the others a button. It can also criticize a command before
it is executed, as in all tasks of commands (:mod:`thespis.envs.text.commands`).
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from thespis.core.spaces import word_vocabulary
from thespis.envs.text.commands import APPROVAL, OBJECTION, CommandTask
from thespis.envs.text.task import RESPONSE_CUE, TaskSpec, TaskStep, pack_tokens
from thespis.runtime.keys import fold

FIELDS = {
    "item": ("book", "lamp", "chair", "desk"),
    "delivery": ("post", "pickup"),
    "city": ("rome", "oslo", "lima"),
    "shop": ("north", "south", "east"),
    "payment": ("card", "cash"),
    "bank": ("alpha", "beta", "gamma"),
}
"""Fields in the order in which they are asked for, and their values."""
CONDITIONS = {"city": "post", "shop": "pickup", "bank": "card"}
"""Fields that appear only if another one has this value."""
BUTTONS = ("undo", "send", "erase")
COMMANDS = (*(value for values in FIELDS.values() for value in values), *BUTTONS)
"""All commands; a value belongs to one field only."""
_UNDO, _SEND, _ERASE = (COMMANDS.index(button) for button in BUTTONS)
_NUM_VALUES = np.array([len(values) for values in FIELDS.values()])
_OFFSETS = np.cumsum(_NUM_VALUES) - _NUM_VALUES
_CONDITION = np.array([COMMANDS.index(CONDITIONS[field]) if field in CONDITIONS else -1 for field in FIELDS])
"""Command that opens each field; -1 for one that is always there."""
_MAX_ASKED = len(FIELDS) - 1
"""Fields of the longest form: either the city or the shop is asked for."""


class FormState(eqx.Module):
    """State of an episode: the commands that fill in each field as wanted, and those that were given.

    -1 where a field is not part of the form, or not filled in yet.
    """

    wanted: Int[Array, "*episodes field"]
    entries: Int[Array, "*episodes field"]


class Form(CommandTask):
    """Form task: fill in a form that grows with what is filled in, and send it; mistakes with buttons are final.

    ``max_turns``: commands until the episode is over; the longest form needs 6. ``num_fields``: how many of
    :data:`FIELDS` there are, 1 to 6. Settings of noise: :class:`~thespis.envs.text.commands.CommandTask`.
    """

    max_turns: int = eqx.field(static=True, default=12)
    num_fields: int = eqx.field(static=True, default=len(FIELDS))

    def __check_init__(self):
        """Raise ``ValueError`` for a number of fields that do not exist."""
        if not 1 <= self.num_fields <= len(FIELDS):
            raise ValueError(f"num_fields={self.num_fields}: 1 to {len(FIELDS)}")

    @property
    def commands(self) -> tuple[str, ...]:
        """Values of all fields, and buttons."""
        return COMMANDS

    @property
    def task_spec(self) -> TaskSpec:
        """Fields, their values, buttons and the words of critiques."""
        words = (RESPONSE_CUE, "want", "ask", "full", "nothing", "happens", APPROVAL, OBJECTION, *FIELDS, *COMMANDS)
        return TaskSpec(
            "text:form",
            word_vocabulary(words),
            self.max_turns,
            max_response_tokens=2,
            max_opening_tokens=min(self.num_fields, _MAX_ASKED) + 4,
            max_message_tokens=3,
            choices=(*COMMANDS[: _OFFSETS[self.num_fields - 1] + _NUM_VALUES[self.num_fields - 1]], *BUTTONS),
        )

    def init(self, key: Key[Array, ""]) -> tuple[FormState, Int[Array, " opening"]]:
        """An empty form, and the values that are wanted."""
        spec = self.task_spec
        values = jnp.asarray(_OFFSETS) + jax.random.randint(fold(key, "values"), (len(FIELDS),), 0, _NUM_VALUES)
        wanted = jnp.where(self._is_open(values), values, -1).astype("int32")
        state = FormState(wanted, jnp.full(len(FIELDS), -1, "int32"))
        words = jnp.where(wanted >= 0, spec.encode_word(COMMANDS[0]) + wanted, -1)
        return state, pack_tokens(spec.max_opening_tokens, spec.encode("want"), words, self._question(state.entries))

    def step(
        self, state: FormState, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[FormState, TaskStep]:
        """The form after a command, and the next question; a button ends the episode."""
        spec, command = self.task_spec, self.read_command(response)
        entries = self.execute(state.entries, command)
        is_over = (command == _SEND) | (command == _ERASE)
        is_right = (command == _SEND) & (state.entries == state.wanted).all()
        refusal = pack_tokens(spec.max_message_tokens, spec.encode(f"nothing happens {RESPONSE_CUE}"))
        message = jnp.where((entries == state.entries).all(), refusal, self._question(entries))
        next_state = FormState(state.wanted, entries)
        return next_state, TaskStep(jnp.where(is_over, -1, message), is_right.astype("float32"), is_over)

    def execute(self, entries: Int[Array, " field"], command: Int[Array, ""]) -> Int[Array, " field"]:
        """The entries after a command, by its index; the same where it cannot be executed, or is no entry."""
        field, filled = self._asked_field(entries), entries >= 0
        fills = (field >= 0) & (self.field_of(command) == field)
        undoes = (command == _UNDO) & filled.any()
        last = len(FIELDS) - 1 - jnp.argmax(filled[::-1])
        undone = jnp.where(undoes, entries.at[last].set(-1), entries)
        return jnp.where(fills, entries.at[field].set(command), undone)

    def right_command(self, state: FormState) -> Int[Array, ""]:
        """Index of the command that gets on: ``undo`` while anything is wrong, then the next value, then ``send``."""
        field = self._asked_field(state.entries)
        is_wrong = ((state.entries >= 0) & (state.entries != state.wanted)).any()
        return jnp.where(is_wrong, _UNDO, jnp.where(field < 0, _SEND, state.wanted[field]))

    def random_command(self, state: FormState, key: Key[Array, ""]) -> Int[Array, ""]:
        """A value of the field that is asked for, or a button."""
        field = self._asked_field(state.entries)
        count = jnp.where(field < 0, 1, jnp.asarray(_NUM_VALUES)[field])
        value = jnp.asarray(_OFFSETS)[field] + jax.random.randint(fold(key, "value"), (), 0, count)
        button = _UNDO + jax.random.randint(fold(key, "button"), (), 0, len(BUTTONS))
        fills = jax.random.bernoulli(fold(key, "fills")) & (field >= 0)
        return jnp.where(fills, value, button)

    def _is_open(self, entries: Int[Array, " field"]) -> Bool[Array, " field"]:
        """Which fields are part of a form with these entries."""
        is_opened = (_CONDITION < 0) | (jnp.asarray(_CONDITION)[:, None] == entries[None]).any(axis=1)
        return jnp.asarray(is_opened) & (jnp.arange(len(FIELDS)) < self.num_fields)

    def _asked_field(self, entries: Int[Array, " field"]) -> Int[Array, ""]:
        """Index of the first field that is not filled in; -1 if there is none."""
        asked = self._is_open(entries) & (entries < 0)
        return jnp.where(asked.any(), jnp.argmax(asked), -1)

    def field_of(self, command: Int[Array, ""]) -> Int[Array, ""]:
        """Index of the field that a command fills in; the number of fields for a button, -1 for no command."""
        return jnp.where(command < 0, -1, (command >= jnp.asarray(_OFFSETS + _NUM_VALUES)).sum())

    def _question(self, entries: Int[Array, " field"]) -> Int[Array, " 3"]:
        """The message that asks for the next field, or says that there is none."""
        spec, field = self.task_spec, self._asked_field(entries)
        asks = pack_tokens(3, spec.encode("ask"), spec.encode_word("item") + field, spec.encode(RESPONSE_CUE))
        return jnp.where(field < 0, pack_tokens(3, spec.encode(f"full {RESPONSE_CUE}")), asks)
