"""Tool task: make an item with tools, each of which turns some items into another; what is used up is gone.

``have a d want f saw a makes c mill c d makes f oven d makes b >`` states the items that are there, the item that is
wanted, and for every tool what it takes and what it makes. A command is the name of a tool, followed by ``<end>``. If
its items are there, it uses them up and makes another, and the response is that item, ``c >``; otherwise nothing
happens and the response is ``missing >``. Making the wanted item earns 1 and ends the episode. Which tool makes what is
drawn anew for every episode, so that a plan has to be read off the graph of tools: a chain of up to ``max_calls`` calls
leads to the wanted item, other tools lead astray, and some of them use up what the chain needs.

How many calls are left to make is known for every set of items (:func:`calls_to_make`), and with it which calls are
right: those on a shortest way. Once the wanted item cannot be made any more, no call is. The demonstrator calls a right
tool, in a share ``demonstrator_noise`` a random one; it criticizes calls before they are executed as in all tasks of
commands (:mod:`thespis.envs.text.commands`).
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

ITEMS = ("a", "b", "c", "d", "e", "f", "g")
TOOLS = ("saw", "mill", "oven", "press", "loom", "forge")
NUM_GIVEN = 3
"""Items that are there at the beginning; the others are made."""
MAX_CALLS = len(ITEMS) - NUM_GIVEN
NEVER = 99
"""Calls that are left where the wanted item cannot be made."""
_SETS = np.arange(2 ** len(ITEMS))
"""All sets of items, as the bits of a number."""


class ToolState(eqx.Module):
    """State of an episode: what each tool takes and makes, the item that is wanted, and the items that are there.

    ``takes`` is sorted, and begins with -1 where a tool takes one item only.
    """

    takes: Int[Array, "*episodes tool 2"]
    makes: Int[Array, "*episodes tool"]
    wanted: Int[Array, "*episodes"]
    items: Bool[Array, "*episodes item"]


class Tools(CommandTask):
    """Tool task: make an item by calls of tools that use up their inputs; the plan is read off a graph of tools.

    ``max_turns``: calls until the episode is over. ``num_tools``: how many of :data:`TOOLS` there are, 1 to 6.
    ``min_calls`` and ``max_calls``: shortest and longest chain, 1 to 4, at most ``num_tools``; a length is drawn
    uniformly. Settings of noise: :class:`~thespis.envs.text.commands.CommandTask`.
    """

    max_turns: int = eqx.field(static=True, default=6)
    num_tools: int = eqx.field(static=True, default=5)
    min_calls: int = eqx.field(static=True, default=2)
    max_calls: int = eqx.field(static=True, default=4)
    demonstrator_noise: float = 0.7

    def __check_init__(self):
        """Raise ``ValueError`` for a number of tools that do not exist, or a chain that they cannot form."""
        if not 1 <= self.num_tools <= len(TOOLS):
            raise ValueError(f"num_tools={self.num_tools}: 1 to {len(TOOLS)}")
        if not 1 <= self.min_calls <= self.max_calls <= min(MAX_CALLS, self.num_tools):
            raise ValueError(
                f"min_calls={self.min_calls}, max_calls={self.max_calls}: 1 to {min(MAX_CALLS, self.num_tools)}"
            )

    @property
    def commands(self) -> tuple[str, ...]:
        """The tools that there are."""
        return TOOLS[: self.num_tools]

    @property
    def task_spec(self) -> TaskSpec:
        """Items, tools and the words of critiques."""
        words = (RESPONSE_CUE, "have", "want", "makes", "missing", APPROVAL, OBJECTION, *ITEMS, *TOOLS)
        return TaskSpec(
            "text:tools",
            word_vocabulary(words),
            self.max_turns,
            max_response_tokens=2,
            max_opening_tokens=NUM_GIVEN + 4 + 5 * self.num_tools,
            max_message_tokens=2,
            choices=self.commands,
        )

    def init(self, key: Key[Array, ""]) -> tuple[ToolState, Int[Array, " opening"]]:
        """Tools of which some form a chain from the given items to the wanted one, in random order."""
        names = jax.random.permutation(fold(key, "items"), len(ITEMS))
        length = jax.random.randint(fold(key, "calls"), (), self.min_calls, self.max_calls + 1)
        takes, makes = self._draw_tools(length, fold(key, "tools"))
        order = jax.random.permutation(fold(key, "order"), self.num_tools)
        takes = jnp.sort(jnp.where(takes < 0, -1, names[takes])[order], axis=-1)
        items = jnp.zeros(len(ITEMS), bool).at[names[:NUM_GIVEN]].set(True)
        state = ToolState(
            takes.astype("int32"), names[makes][order].astype("int32"), names[NUM_GIVEN - 1 + length], items
        )
        return state, self._opening(state)

    def step(
        self, state: ToolState, response: Int[Array, " response"], key: Key[Array, ""]
    ) -> tuple[ToolState, TaskStep]:
        """The items after a call, and the item that it made."""
        spec, call = self.task_spec, self.read_command(response)
        is_possible = self._is_possible(state)[call] & (call >= 0)
        product = state.makes[call]
        items = jnp.where(is_possible, self._items_after(state)[call], state.items)
        is_done = is_possible & (product == state.wanted)
        word = jnp.where(is_possible, spec.encode_word(ITEMS[0]) + product, spec.encode_word("missing"))
        message = jnp.where(is_done, -1, pack_tokens(spec.max_message_tokens, word, spec.encode(RESPONSE_CUE)))
        next_state = eqx.tree_at(lambda s: s.items, state, items)
        return next_state, TaskStep(message, is_done.astype("float32"), is_done)

    def right_command(self, state: ToolState) -> Int[Array, ""]:
        """The first tool on a shortest way to the wanted item; the first of all where there is none."""
        return jnp.argmin(self._calls_after(state)).astype("int32")

    def is_right_action(self, state: ToolState, response: Int[Array, " response"]) -> Bool[Array, ""]:
        """Whether a response is a call on a shortest way to the wanted item."""
        call, left = self.read_command(response), self._calls_after(state)
        return (call >= 0) & (left[call] == left.min()) & (left.min() < NEVER)

    def random_command(self, state: ToolState, key: Key[Array, ""]) -> Int[Array, ""]:
        """A tool, uniformly random."""
        return jax.random.randint(fold(key, "tool"), (), 0, self.num_tools)

    def _draw_tools(self, length: Int[Array, ""], key: Key[Array, ""]) -> tuple[Array, Array]:
        """What tools take and make, by the position of items: the given ones first, then those of the chain.

        The first tools are the chain: each takes what the one before it made, the first two often a given item, too.
        The others take and make anything, but not the wanted item.
        """
        n, wanted = self.num_tools, NUM_GIVEN - 1 + length
        index = jnp.arange(n)
        has_second = jax.random.bernoulli(fold(key, "two"), 0.5, (n,))
        chain_first = jnp.where(index == 0, 0, NUM_GIVEN - 1 + index)
        chain_second = jnp.where(has_second & (index < NUM_GIVEN - 1), 1 + index, -1)
        other = jax.vmap(lambda k: jax.random.permutation(k, len(ITEMS)))(jax.random.split(fold(key, "other"), n))
        other_makes = jnp.where(other[:, 2] == wanted, other[:, 3], other[:, 2])
        in_chain = index < length
        first = jnp.where(in_chain, chain_first, other[:, 0])
        second = jnp.where(in_chain, chain_second, jnp.where(has_second, other[:, 1], -1))
        return jnp.stack([first, second], axis=-1), jnp.where(in_chain, NUM_GIVEN + index, other_makes)

    def _opening(self, state: ToolState) -> Int[Array, " opening"]:
        """What is there, what is wanted, and what the tools do."""
        spec, first = self.task_spec, self.task_spec.encode_word(ITEMS[0])
        items = jnp.where(state.items, first + jnp.arange(len(ITEMS)), -1)
        takes = jnp.where(state.takes < 0, -1, first + state.takes)
        tools = spec.encode_word(TOOLS[0]) + jnp.arange(self.num_tools)
        makes = jnp.full(self.num_tools, spec.encode_word("makes"))
        lines = jnp.column_stack([tools, takes, makes, first + state.makes])
        start = (spec.encode("have"), items, spec.encode("want"), first + state.wanted)
        return pack_tokens(spec.max_opening_tokens, *start, lines.ravel(), spec.encode(RESPONSE_CUE))

    def _is_possible(self, state: ToolState) -> Bool[Array, " tool"]:
        """Which tools have what they take."""
        return ((state.takes < 0) | state.items[state.takes]).all(axis=-1)

    def _items_after(self, state: ToolState) -> Bool[Array, "tool item"]:
        """The items after a call of each tool, if it is possible."""
        inputs, product = self._inputs_and_product(state)
        return (state.items & ~inputs) | product

    def _inputs_and_product(self, state: ToolState) -> tuple[Bool[Array, "tool item"], Bool[Array, "tool item"]]:
        """The items that each tool uses up, and the one that it makes."""
        index = jnp.arange(len(ITEMS))
        return (state.takes[:, :, None] == index).any(axis=1), state.makes[:, None] == index

    def _calls_after(self, state: ToolState) -> Int[Array, " tool"]:
        """Calls that are left after a call of each tool; :data:`NEVER` if it is not possible, or leads nowhere."""
        inputs, product = self._inputs_and_product(state)
        bits = 2 ** jnp.arange(len(ITEMS))
        left = calls_to_make(inputs @ bits, product @ bits, bits[state.wanted])
        return jnp.where(self._is_possible(state), left[self._items_after(state) @ bits], NEVER)


def calls_to_make(
    inputs: Int[Array, " tool"], product: Int[Array, " tool"], wanted: Int[Array, ""]
) -> Int[Array, " set"]:
    """Fewest calls that make the wanted item from each set of items: 0 if it is there, :data:`NEVER` if nothing does.

    Sets are numbers whose bits are items: those that each tool uses up, the one that it makes, the wanted one.
    """
    sets = jnp.asarray(_SETS)
    is_possible = (sets & inputs[:, None]) == inputs[:, None]
    after = (sets & ~inputs[:, None]) | product[:, None]

    def improved(left: Int[Array, " set"]) -> Int[Array, " set"]:
        return jnp.minimum(left, 1 + jnp.where(is_possible, left[after], NEVER).min(axis=0))

    left = jnp.where(sets & wanted, 0, NEVER)
    pair = jax.lax.while_loop(
        lambda pair: (pair[0] != pair[1]).any(), lambda pair: (pair[1], improved(pair[1])), (left, improved(left))
    )
    return pair[1]
