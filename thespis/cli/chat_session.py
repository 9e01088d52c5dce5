"""Interactive dialogue with a language model at the terminal, in the role of the environment or of the actor."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from thespis.cli.output import CommandOutput
from thespis.core.spaces import Text, Vocabulary
from thespis.evaluation.conversation import make_detokenizer
from thespis.evaluation.run import Run
from thespis.language.chat import Conversation
from thespis.language.engine import GenerationConfig, RequestError
from thespis.language.local_engine import LocalEngine

_MAX_WORDS = 40  # of a vocabulary, in a line


def vocabulary_line(vocabulary: Vocabulary | None) -> str:
    """The words of a vocabulary in a line; empty without a word vocabulary."""
    if vocabulary is None or not vocabulary.words:
        return ""
    words = [word for word in vocabulary.words if not (word.startswith("<") and word.endswith(">"))]
    suffix = f" ... ({len(words)} words)" if len(words) > _MAX_WORDS else ""
    return f"the words are: {' '.join(words[:_MAX_WORDS])}{suffix}"


def unknown_words(text: str, vocabulary: Vocabulary | None) -> str:
    """An error message for words outside the vocabulary; empty if there are none."""
    words = () if vocabulary is None else vocabulary.words
    unknown = [word for word in text.split() if words and word not in words]
    return f"not in the vocabulary: {' '.join(unknown)}; {vocabulary_line(vocabulary)}" if unknown else ""


def first_message(run: Run, seed: int) -> str:
    """The first observation of a run's environment as text."""
    envs = run.make_envs(1)
    try:
        space: Any = envs.spec.action_space
        return make_detokenizer(space.vocabulary)(envs.reset([seed]).observation[0])
    finally:
        envs.close()


@dataclasses.dataclass
class EnvironmentRoleChat:
    """Dialogue in which the user plays the environment and the model responds; an empty line starts a new one."""

    engine: LocalEngine
    config: GenerationConfig
    vocabulary: Vocabulary | None
    out: CommandOutput

    def run(self) -> list[dict[str, str]]:
        """Chat until the end of input; returns all messages with their roles."""
        conversation, messages, turn = Conversation(), [], 0
        while True:
            try:
                typed = self.out.input("environment: ").strip()
            except EOFError:
                self.out.print()
                return messages
            if not typed:
                conversation = Conversation()
                self.out.print("a new conversation starts")
            elif error_text := unknown_words(typed, self.vocabulary):
                self.out.print(error_text, markup=False)
            else:
                prompt = conversation.add_messages(
                    self.engine.template, self.engine.tokenizer, {"role": "user", "content": typed}
                )
                try:
                    tokens = self._stream_response(prompt, turn)
                except RequestError as error:
                    self.out.print(f"{error}; an empty line starts a new conversation", markup=False)
                    continue
                conversation, turn = prompt.add_response(self.engine.tokenizer, tokens), turn + 1
                messages += [
                    {"role": "environment", "content": typed},
                    {"role": "actor", "content": conversation.messages[-1]["content"]},
                ]

    def _stream_response(self, conversation: Conversation, turn: int) -> list[int]:
        """Generate a response, printing it as it is streamed; returns its tokens."""
        config = dataclasses.replace(self.config, seed=(self.config.seed or 0) + turn)
        chunks = self.engine.stream(conversation, config)
        first = next(chunks)  # raises errors of the request before anything is printed
        tokens, text, print_text = [*(first.tokens or ())], first.text, self.out.console.print
        print_text("actor:", first.text, end="", markup=False, soft_wrap=True)
        for chunk in chunks:
            tokens, text = [*tokens, *(chunk.tokens or ())], text + chunk.text
            print_text(chunk.text, end="", markup=False, soft_wrap=True)
        print_text("" if text.strip() else "(nothing)")
        return tokens


@dataclasses.dataclass
class ActorRoleChat:
    """Dialogue in which the user plays the actor in the run's environment and sees the model's suggestion.

    An empty line sends the suggestion.
    """

    trained_run: Run
    engine: LocalEngine
    config: GenerationConfig
    out: CommandOutput

    def run(self) -> dict[str, Any]:
        """Play one episode; returns its return and turns. Raises ``EOFError`` at the end of input."""
        envs = self.trained_run.make_envs(1)
        spec, seed = envs.spec, self.config.seed or 0
        assert isinstance(spec.action_space, Text)
        base_config = dataclasses.replace(
            self.config, max_tokens=min(self.config.max_tokens, spec.action_space.max_length)
        )
        detokenize, turns, total, start = make_detokenizer(spec.action_space.vocabulary), [], 0.0, 0
        try:
            tokens = envs.reset([seed]).observation[0]
            while True:
                count = int((tokens >= 0).sum())
                observation = detokenize(tokens[start:count])
                self.out.print(f"environment: {observation}", markup=False)
                config = dataclasses.replace(base_config, seed=seed + len(turns))
                (completion,) = self.engine.generate([Conversation(tuple(int(i) for i in tokens[:count]))], config)
                suggested = [*(completion.choices[0].tokens or ())]
                self.out.print(f"  the actor would say: {detokenize(np.array(suggested))}", markup=False)
                response = self._prompt_response(spec.action_space, suggested)
                step, view = envs.step(
                    np.array([[*response, *[-1] * (spec.action_space.max_length - len(response))]], "int32")
                )
                reward, total = float(step.reward[0]), total + float(step.reward[0])
                turns.append(
                    {
                        "observation": observation,
                        "response": detokenize(np.array(response)),
                        "suggested": detokenize(np.array(suggested)),
                    }
                )
                turns[-1] |= {"reward": reward}
                if step.terminated[0] or step.truncated[0]:
                    break
                self.out.print(f"  [reward {reward:.3g}]", markup=False)
                tokens, start = view.observation[0], count + len(response)
        finally:
            envs.close()
        self.out.print(f"the episode has ended: return {total:.6g} in {len(turns)} turns")
        return {"return": total, "turns": turns}

    def _prompt_response(self, space: Text, suggested: list[int]) -> list[int]:
        """Read a response from the terminal, repeating the prompt until it fits the vocabulary and the length limit."""
        while True:
            typed = self.out.input("you: ").strip()
            if not typed:
                return suggested
            if error_text := unknown_words(typed, space.vocabulary):
                self.out.print(error_text, markup=False)
                continue
            tokens = [*self.engine.tokenizer.encode(typed), space.vocabulary.eos_tokens[0]]
            if len(tokens) <= space.max_length:
                return tokens
            self.out.print(f"that has {len(tokens) - 1} tokens, but the limit is {space.max_length - 1} tokens")
