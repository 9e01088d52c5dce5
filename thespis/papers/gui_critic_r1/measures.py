"""Measures of a critic of commands, exact: its most likely critiques of all commands are known, and what follows.

There are few forms and commands, so that a critic is asked about each of them once. Its accuracy is that in the task
that it is trained on. What becomes of an actor whose commands it checks before they are executed follows from dynamic
programming: the rules are those of :class:`~thespis.envs.text.pre_act.PreActConversation` with one objection to each
command. After an objection the actor does what the critic suggests, and where nothing is suggested it proposes again.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.contracts import Mode
from thespis.core.records import View
from thespis.envs.text.form import BUTTONS, COMMANDS, CONDITIONS, FIELDS, Form, FormState
from thespis.envs.text.task import TextEnv
from thespis.evidence.measures import Measure
from thespis.papers.gui_critic_r1.envs import CommandReview
from thespis.runtime.keys import seed_key

UNDO, SEND, ERASE = (COMMANDS.index(button) for button in BUTTONS)


@dataclasses.dataclass(frozen=True)
class Forms:
    """All forms of a task: what may be wanted, what may be filled in, and what commands do.

    ``following``: index of the entries after a command, or -1 after a button that ends the episode. ``proposed``: how
    often the actor gives each command.
    """

    wanted: Int[np.ndarray, "wanted field"]
    entries: Int[np.ndarray, "entries field"]
    right: Int[np.ndarray, "wanted entries"]
    following: Int[np.ndarray, "entries command"]
    proposed: Float[np.ndarray, "wanted entries command"]

    @property
    def shares(self) -> Float[np.ndarray, " wanted"]:
        """How often each form is wanted: values of a field are equally likely."""
        counts = np.array([len(values) for values in FIELDS.values()])
        return np.where(self.wanted >= 0, 1.0 / counts, 1.0).prod(axis=1)

    @property
    def weights(self) -> Float[np.ndarray, "wanted entries command"]:
        """How often each command to each form is criticized in training, for commands before it from 0 to 6."""
        stays = np.where(self.following < 0, np.arange(len(self.entries))[:, None], self.following)
        share = np.zeros(self.right.shape)
        share[:, 0] = self.shares
        total = share.copy()
        for _ in range(CommandReview().max_commands_before):
            moved = np.zeros_like(share)
            for command in range(len(COMMANDS)):
                np.add.at(moved.T, stays[:, command], (share * self.proposed[..., command]).T)
            share = moved
            total += share
        return (total / total.sum())[..., None] * self.proposed


def _fillings(form: Form) -> tuple[list[list[int]], list[list[int]]]:
    """Entries of all forms, the empty one first, and of those that are complete."""
    names = list(FIELDS)[: form.num_fields]
    every, complete = [[-1] * len(FIELDS)], []
    for entries in every:
        filled = [COMMANDS[i] for i in entries if i >= 0]
        asked = [f for f in names if f not in CONDITIONS or CONDITIONS[f] in filled]
        missing = [f for f in asked if entries[list(FIELDS).index(f)] < 0]
        if not missing:
            complete.append(entries)
            continue
        for value in FIELDS[missing[0]]:
            more = list(entries)
            more[list(FIELDS).index(missing[0])] = COMMANDS.index(value)
            every.append(more)
    return every, complete


@functools.cache
def all_forms(form: Form) -> Forms:
    """The forms of a task, and the commands of its demonstrator."""
    every, complete = _fillings(form)
    index = {tuple(entries): i for i, entries in enumerate(every)}
    following = np.zeros((len(every), len(COMMANDS)), int)
    right = np.zeros((len(complete), len(every)), int)
    proposed = np.zeros((len(complete), len(every), len(COMMANDS)))
    for e, entries in enumerate(every):
        last = max((i for i, x in enumerate(entries) if x >= 0), default=-1)
        longer = {max(more): i for i, more in enumerate(every) if _extends(more, entries)}
        following[e] = [longer.get(command, e) for command in range(len(COMMANDS))]
        following[e, UNDO] = index[tuple(-1 if i == last else x for i, x in enumerate(entries))]
        following[e, [SEND, ERASE]] = -1
        noise = np.zeros(len(COMMANDS))
        noise[list(longer)] = 0.5 / max(len(longer), 1)
        noise[[UNDO, SEND, ERASE]] = (0.5 if longer else 1.0) / len(BUTTONS)
        for w, wanted in enumerate(complete):
            is_wrong = any(x >= 0 and x != y for x, y in zip(entries, wanted, strict=True))
            values = [x for x in wanted if x in longer]
            right[w, e] = UNDO if is_wrong else values[0] if longer else SEND
            proposed[w, e] = form.demonstrator_noise * noise
            proposed[w, e, right[w, e]] += 1 - form.demonstrator_noise
    return Forms(np.array(complete), np.array(every), right, following, proposed)


def _extends(more: list[int], entries: list[int]) -> bool:
    """Whether entries have one more value than others, after all of these."""
    added = [i for i, (x, y) in enumerate(zip(more, entries, strict=True)) if x != y]
    return len(added) == 1 and entries[added[0]] < 0 and max(entries[added[0] :]) < 0


@dataclasses.dataclass(frozen=True)
class Critiques:
    """Most likely critiques of all commands that the actor may give: verdicts, and suggestions (-1: there is none)."""

    judges: Int[np.ndarray, "seed wanted entries command"]
    """The verdict: 1 right, 0 wrong, -1 neither."""
    suggestion: Int[np.ndarray, "seed wanted entries command"]

    @property
    def approves(self) -> Bool[np.ndarray, "seed wanted entries command"]:
        """Whether a command is executed: everything that is no objection is an approval."""
        return self.judges != 0


@dataclasses.dataclass(frozen=True)
class CheckedPlay:
    """Shares of forms of each seed: those that succeed, and those that a wrong button ends."""

    success: Float[np.ndarray, " seed"]
    irreversible: Float[np.ndarray, " seed"]


@dataclasses.dataclass(frozen=True)
class CriticMeasures:
    """Measures of critics that learn on a task of reviews; ``max_proposals`` commands, executed or not, for a form."""

    review: CommandReview
    max_proposals: int

    def verdict_accuracy(self) -> Measure:
        """Share of commands whose verdict is right."""

        def shares(run: Any) -> Float[np.ndarray, " seed"]:
            forms, critiques = all_forms(self.review.form), all_critiques(run, self.review)
            is_right = forms.right[..., None] == np.arange(len(COMMANDS))
            return (forms.weights * (critiques.judges == is_right)).sum(axis=(1, 2, 3))

        return Measure("accuracy of verdicts", shares, bounds=(0.0, 1.0))

    def suggestion_accuracy(self) -> Measure:
        """Share of commands where the right one is suggested, or repeated."""
        return Measure("accuracy of suggestions", self._suggestion_accuracy, bounds=(0.0, 1.0))

    def suggestion_errors(self) -> Measure:
        """Share of commands where the right one is not suggested: lower is better."""
        return Measure(
            "errors of suggestions", lambda run: 1.0 - self._suggestion_accuracy(run), False, bounds=(0.0, 1.0)
        )

    def success(self) -> Measure:
        """Share of forms that are sent as wanted where the critic checks the actor's commands."""
        return Measure("success", lambda run: self._checked(run).success, bounds=(0.0, 1.0))

    def irreversible_errors(self) -> Measure:
        """Share of forms that are lost by a button, sent wrong or erased: lower is better."""
        return Measure(
            "irreversible errors per form", lambda run: self._checked(run).irreversible, False, bounds=(0.0, 1.0)
        )

    def success_of_verdicts(self) -> Measure:
        """The success where the actor reads verdicts alone: after an objection it just proposes again."""
        return Measure(
            "success where only verdicts are read", lambda run: self._checked(run, False).success, bounds=(0.0, 1.0)
        )

    def unchecked_success(self) -> Measure:
        """The actor's own success."""

        def shares(run: Any) -> Float[np.ndarray, " seed"]:
            forms = all_forms(self.review.form)
            approvals = np.ones((1, *forms.proposed.shape), int)
            play = checked_play(forms, Critiques(approvals, -approvals), self.max_proposals)
            return np.full(len(run.config["seeds"]), play.success[0])

        return Measure("success without a critic", shares, bounds=(0.0, 1.0))

    def _suggestion_accuracy(self, run: Any) -> Float[np.ndarray, " seed"]:
        forms, critiques = all_forms(self.review.form), all_critiques(run, self.review)
        return (forms.weights * (critiques.suggestion == forms.right[..., None])).sum(axis=(1, 2, 3))

    def _checked(self, run: Any, reads_suggestions: bool = True) -> CheckedPlay:
        forms = all_forms(self.review.form)
        return checked_play(forms, all_critiques(run, self.review), self.max_proposals, reads_suggestions)


def checked_play(forms: Forms, critiques: Critiques, max_proposals: int, reads_suggestions: bool = True) -> CheckedPlay:
    """Exact shares of forms that end well or by a wrong button, from empty forms."""
    num_seeds, (num_wanted, num_entries, num_commands) = len(critiques.approves), forms.proposed.shape
    ends = forms.following < 0
    sends = np.arange(num_commands) == SEND
    is_done = (forms.entries[None] == forms.wanted[:, None]).all(axis=2)
    gain = np.stack([is_done[..., None] & sends, ends & ~(is_done[..., None] & sends)]).astype(float)
    nothing = np.zeros((2, num_seeds, num_wanted, num_entries))
    values = [nothing, nothing]  # by the proposals that are left, one less than the index
    for left in range(1, max_proposals + 1):
        first = _executed(forms, gain, values[left])
        second = _executed(forms, gain, values[left - 1]) if left > 1 else np.zeros_like(first)
        again = (second * forms.proposed).sum(axis=-1, keepdims=True)
        suggested = np.take_along_axis(second, np.maximum(critiques.suggestion, 0)[None], axis=-1)
        follows = reads_suggestions & (critiques.suggestion >= 0)
        objected = np.where(follows, suggested, again)
        value = np.where(critiques.approves, first, objected)
        values.append((forms.proposed * value).sum(axis=-1))
    success, irreversible = values[-1][..., 0] @ forms.shares
    return CheckedPlay(success, irreversible)


def _executed(
    forms: Forms, gain: Float[np.ndarray, "2 wanted entries command"], value: Float[np.ndarray, "2 seed wanted entries"]
) -> Float[np.ndarray, "2 seed wanted entries command"]:
    """The shares after each command is executed."""
    later = np.where(forms.following < 0, 0.0, value[..., np.maximum(forms.following, 0)])
    return gain[:, None] + later


@functools.lru_cache(maxsize=64)
def all_critiques(run: Any, review: CommandReview) -> Critiques:
    """A run's most likely critiques of all commands that the actor may give: ``[seed, wanted, entries, command]``."""
    forms = all_forms(review.form)
    w, e, c = np.nonzero(forms.proposed > 0)
    wanted, entries, command = (jnp.asarray(x, "int32") for x in (forms.wanted[w], forms.entries[e], c))
    answers = _ask_seeds(run.method, run.states, review, FormState(wanted, entries), command, seed_key(0))
    shape = len(run.config["seeds"]), *forms.proposed.shape
    judges, suggestion = np.full(shape, -1), np.full(shape, -1)
    for table, by_row in zip((judges, suggestion), answers, strict=True):
        table[:, w, e, c] = np.asarray(by_row)
    return Critiques(judges, suggestion)


@eqx.filter_jit
def _ask_seeds(
    method: Any,
    states: PyTree,
    review: CommandReview,
    form: FormState,
    command: Int[Array, " row"],
    key: Key[Array, ""],
) -> tuple[Int[Array, "seed row"], Int[Array, "seed row"]]:
    """Verdict and suggestion of every seed's critic about every row."""
    space: Any = TextEnv(review).spec.observation_space
    opening = jax.vmap(review.opening)(form, command)
    view = View(jnp.pad(opening, ((0, 0), (0, space.max_length - opening.shape[1])), constant_values=-1))

    def ask(state: PyTree) -> tuple[Array, Array]:
        policy = method.policy(state, Mode.EXPLOIT)
        # as a constant, XLA would fold the empty cache at length when it compiles
        memory = jax.lax.optimization_barrier(method.init_memory(policy, len(command)))
        critique, _, _ = method.act(policy, memory, view, key)
        return jax.vmap(review.form.critique_judgment)(critique), jax.vmap(review.suggested_command)(critique)

    return jax.lax.map(ask, states)
