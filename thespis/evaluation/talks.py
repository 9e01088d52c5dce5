"""Sample conversations of a run under way: kept at its begin, in its middle and at its end, and shown side by side.

They begin alike at all times, since worlds and draws have the same keys: what differs is what was learnt.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import PyTree

from thespis.core.contracts import HostEnvironment, Method, Mode
from thespis.evaluation import conversation, page, words
from thespis.evaluation.play import play

KEPT = 2
"""Conversations at a time."""


def kept(
    method: Method, states: PyTree, make_worlds: Callable[[int], HostEnvironment], seeds: list[int]
) -> list[dict[str, Any]]:
    """Sampled conversations of the first seed in a world of texts, as JSON: ``return`` and ``turns``.

    ``states`` have the leading axis ``[seed]``. Turns are fields of :class:`~thespis.evaluation.conversation.Turn`.
    """
    worlds = make_worlds(KEPT)
    try:
        spec, first = worlds.spec, jax.tree.map(lambda x: x[:1], states)
        (episodes,) = play(method, first, worlds, seeds[:1], Mode.SAMPLE, keep=KEPT, stream="talks").kept
    finally:
        worlds.close()
    judge, state = jax.jit(lambda state, steps: method.judge(state, steps)), jax.tree.map(lambda x: x[0], first)
    told = [conversation.turns(spec, steps, judge(state, steps)) for steps in episodes]
    return [
        {"return": sum(turn.reward for turn in turns), "turns": [dataclasses.asdict(turn) for turn in turns]}
        for turns in told
    ]


def shown(moments: list[dict[str, Any]]) -> str:
    """The conversations of a run as HTML: a row for each beginning, in it columns for three times."""
    if not moments:
        return ""
    if len(moments) > 3:  # a run that was stopped and went on has more
        moments = [moments[0], moments[len(moments) // 2], moments[-1]]
    count = max(len(moment["conversations"]) for moment in moments)
    rows = [[_column(moment, i) for moment in moments if i < len(moment["conversations"])] for i in range(count)]
    note = "Sampled, of the first training seed, with the same beginnings and the same draws at all times. "
    note += "Indented: what the actor said; below it what the turn brought."
    return page.paragraph(note, "note") + "".join(f'<div class="talks">{"".join(row)}</div>' for row in rows)


def _column(moment: dict[str, Any], i: int) -> str:
    talk = moment["conversations"][i]
    title = f"step {moment['step']:,} · return {words.number(talk['return'], 3)}"
    return f"<div><h3>{page.escape(title)}</h3>{''.join(_turn(turn) for turn in talk['turns'])}</div>"


def _turn(turn: dict[str, Any]) -> str:
    known = {name: turn[name] for name in ("reward", "value", "advantage") if turn[name] is not None}
    worth = " · ".join(f"{name}\N{NO-BREAK SPACE}{words.number(round(number, 3), 2)}" for name, number in known.items())
    heard, said = page.escape(turn["heard"].strip()), page.escape(turn["said"].strip()) or "(nothing)"
    return f'<p class="heard">{heard}</p><p class="said">{said}</p><p class="worth">{worth}</p>'
