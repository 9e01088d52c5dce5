"""Dialogue episodes as text: observation, response, reward and value of each turn.

Sample dialogues of a run, taken at its start, middle and end, and shown side by side in reports.

Environments and sampling use the same keys each time, so that differences come from learning alone.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int, PyTree

from thespis.core.contracts import HostEnvironment, Method, Mode
from thespis.core.records import Critique, EnvSpec, Transition
from thespis.core.spaces import Text, Vocabulary, leaf_spaces
from thespis.evaluation import formatting, html_page
from thespis.evaluation.rollout import play_episodes

_LINE_WIDTH = 88


@dataclasses.dataclass(frozen=True)
class Turn:
    """One turn of a dialogue: observation and response as text, reward, and the critic's value and advantage if any.

    ``speaker``: the seat that responds, in a conversation of several.
    """

    observation: str
    response: str
    reward: float
    value: float | None
    advantage: float | None
    speaker: str = ""

    @property
    def score_line(self) -> str:
        """Reward, value and advantage in one line; those that are missing are left out."""
        numbers = {"reward": self.reward, "value": self.value, "advantage": self.advantage}
        return "  ".join(f"{name} {number:.3g}" for name, number in numbers.items() if number is not None)


def has_turns(spec: EnvSpec) -> bool:
    """Whether all actions are responses in words: of one actor, or of the seats of a conversation."""
    if isinstance(spec.action_space, Text):
        return True
    has_seats = bool(spec.groups) and all(group.num_agents == 1 for group in spec.groups)
    return has_seats and all(isinstance(space, Text) for space in leaf_spaces(spec.action_space))


def episode_turns(spec: EnvSpec, transitions: Transition, critique: Critique) -> list[Turn]:
    """Turns of one episode ``[time]`` of a text environment."""
    if not isinstance(spec.action_space, Text):
        return _turns_of_seats(spec, transitions)
    detokenize, observations, actions = (
        make_detokenizer(spec.action_space.vocabulary),
        np.asarray(transitions.view.observation),
        np.asarray(transitions.action),
    )
    critic_columns: Any = [getattr(critique, name) for name in ("value", "advantage")]
    turns, start = [], 0
    for t in range(len(observations)):
        count = int((observations[t] >= 0).sum())
        numbers: Any = [None if column is None else float(column[t]) for column in critic_columns]
        reward = float(np.asarray(transitions.reward)[t])
        turns.append(Turn(detokenize(observations[t, start:count]), detokenize(actions[t]), reward, *numbers))
        start = count + int((actions[t] >= 0).sum())
    return turns


def _turns_of_seats(spec: EnvSpec, transitions: Transition) -> list[Turn]:
    alive: Any = transitions.view.alive
    outcomes: Any = transitions.agent_outcomes
    names = [group.name for group in spec.groups]
    speakers = [next(name for name in names if alive[name][t, 0]) for t in range(len(transitions.reward))]
    transcripts, responses = (
        {name: np.asarray(tree[name])[:, 0] for name in names}
        for tree in (transitions.view.observation, transitions.action)
    )
    rewards = {name: np.asarray(outcomes[name].reward)[:, 0] for name in names}
    space = leaf_spaces(spec.action_space)[0]
    assert isinstance(space, Text)
    return seat_turns(space.vocabulary, speakers, transcripts, responses, rewards)


def seat_turns(
    vocabulary: Vocabulary,
    speakers: Sequence[str],
    transcripts: Mapping[str, Int[np.ndarray, "turn time"]],
    responses: Mapping[str, Int[np.ndarray, "turn response"]],
    rewards: Mapping[str, Float[np.ndarray, " turn"]],
) -> list[Turn]:
    """Turns of a conversation of several seats, from what each had read and said in each turn.

    A seat's reward that comes while others speak counts for its last turn.
    """
    detokenize, read = make_detokenizer(vocabulary), dict.fromkeys(transcripts, 0)
    turns = []
    for t, speaker in enumerate(speakers):
        text, response = transcripts[speaker][t], responses[speaker][t]
        count = int((text >= 0).sum())
        later = next((u for u in range(t + 1, len(speakers)) if speakers[u] == speaker), len(speakers))
        reward = float(rewards[speaker][t:later].sum())
        message = detokenize(text[read[speaker] : count])
        turns.append(Turn(message, detokenize(response), reward, None, None, speaker))
        read[speaker] = count + int((response >= 0).sum())
    return turns


def make_detokenizer(vocabulary: Vocabulary) -> Callable[[np.ndarray], str]:
    """Detokenizer: maps tokens to text, without padding and with special tokens by their names.

    Without a tokenizer, tokens are joined as words of the vocabulary, or as numbers if it has no words.
    """
    if vocabulary.tokenizer_dir:
        from thespis.language.tokenizer import load_tokenizer

        tokenizer = load_tokenizer(vocabulary.tokenizer_dir)
        return lambda tokens: tokenizer.decode(tokens)
    return lambda tokens: " ".join(
        vocabulary.words[token] if vocabulary.words else str(token) for token in tokens if token >= 0
    )


def format_conversation(turns: list[Turn]) -> list[str]:
    """A dialogue as lines of text for the terminal."""
    lines = []
    for turn in turns:
        spoken = f"{turn.speaker}: {turn.response}" if turn.speaker else turn.response
        lines += textwrap.wrap(turn.observation, _LINE_WIDTH)
        lines += textwrap.wrap(f"  {spoken}", _LINE_WIDTH, subsequent_indent="  ")
        lines.append(f"    [{turn.score_line}]")
    return lines


def render_conversation(title: str, turns: list[Turn], max_lines: int = 24) -> list[np.ndarray]:
    """Images of a dialogue, one per turn, each with the last ``max_lines`` lines so far."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from thespis.evaluation.figure_style import styled_figure

    images = []
    for count in range(1, len(turns) + 1):
        with styled_figure((7.2, 5.0)) as fig:
            canvas = FigureCanvasAgg(fig)
            fig.text(0.03, 0.95, title, fontsize=10, va="top")
            fig.text(
                0.03,
                0.9,
                "\n".join(format_conversation(turns[:count])[-max_lines:]),
                fontsize=8,
                va="top",
                family="monospace",
            )
            canvas.draw()
            images.append(np.asarray(canvas.buffer_rgba())[..., :3].copy())
    return images


NUM_SAMPLES = 2
"""Number of dialogues per snapshot."""


def sample_conversations(
    method: Method, states: PyTree, make_envs: Callable[[int], HostEnvironment], seeds: list[int]
) -> list[dict[str, Any]]:
    """Sampled dialogues of the first seed in a text environment, as JSON: ``return`` and ``turns``.

    ``states`` have the leading axis ``[seed]``. Turns are fields of :class:`~thespis.evaluation.conversation.Turn`.
    """
    envs = make_envs(NUM_SAMPLES)
    try:
        spec, first = envs.spec, jax.tree.map(lambda x: x[:1], states)
        (episodes,) = play_episodes(
            method, first, envs, seeds[:1], Mode.SAMPLE, num_kept=NUM_SAMPLES, stream="talks"
        ).episodes
    finally:
        envs.close()
    judge, state = jax.jit(lambda state, steps: method.judge(state, steps)), jax.tree.map(lambda x: x[0], first)
    dialogues = [episode_turns(spec, steps, judge(state, steps)) for steps in episodes]
    return [
        {"return": sum(turn.reward for turn in turns), "turns": [dataclasses.asdict(turn) for turn in turns]}
        for turns in dialogues
    ]


def conversations_html(snapshots: list[dict[str, Any]]) -> str:
    """The dialogues of a run as HTML: a row per initial state, with a column for each of up to three snapshots."""
    if not snapshots:
        return ""
    if len(snapshots) > 3:  # a resumed run has more
        snapshots = [snapshots[0], snapshots[len(snapshots) // 2], snapshots[-1]]
    count = max(len(snapshot["conversations"]) for snapshot in snapshots)
    rows = [
        [_conversation_html(snapshot, i) for snapshot in snapshots if i < len(snapshot["conversations"])]
        for i in range(count)
    ]
    note = "Sampled from the first training seed, with the same initial states and random numbers in all snapshots. "
    note += "Indented: the response of the policy; below it the reward, value and advantage of the turn."
    return html_page.paragraph(note, "note") + "".join(html_page.box("dialogues", *row) for row in rows)


def _conversation_html(snapshot: dict[str, Any], index: int) -> str:
    dialogue = snapshot["conversations"][index]
    title = f"step {snapshot['step']:,} · return {formatting.format_number(dialogue['return'], 3)}"
    return html_page.conversation(title, [_turn_texts(turn) for turn in dialogue["turns"]])


def _turn_texts(turn: dict[str, Any]) -> tuple[str, str, str]:
    numbers = {name: turn[name] for name in ("reward", "value", "advantage") if turn[name] is not None}
    scores = " · ".join(
        f"{name}\N{NO-BREAK SPACE}{formatting.format_number(round(number, 3), 2)}" for name, number in numbers.items()
    )
    speaker = f"{turn['speaker']}: " if turn.get("speaker") else ""  # runs of earlier versions do not name it
    return turn["observation"].strip(), speaker + (turn["response"].strip() or "(nothing)"), scores
