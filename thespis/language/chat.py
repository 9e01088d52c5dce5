"""Conversations as token ids: what an actor has said stays the ids that were sampled, whatever a template does to text.

A checkpoint's chat template (Jinja) turns messages into text. Here only the text *between* two utterances of the actor
is ever asked of it and tokenised: it is rendered around a mark that stands for the utterance, and what comes after the
mark is what the world and the template add. So no token of the actor is tokenised again, and every id has an owner.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from thespis.core.errors import UserError, missing_extra
from thespis.language.tokens import Tokenizer
from thespis.language.weights import read_json

Message = Mapping[str, Any]
TEMPLATE, WORLD, ACTOR = 0, 1, 2
"""Who a token belongs to: the template, the world, or the actor in seat ``owner - ACTOR``."""
_MARK = "\N{OBJECT REPLACEMENT CHARACTER}said\N{OBJECT REPLACEMENT CHARACTER}"

_PLAIN = (
    "{% for m in messages %}{{ m.role + ':\n' + m.content + eos_token + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant:\n' }}{% endif %}"
)


class Template:
    """A chat template, rendered as transformers renders it. ``special``: tokens it may name, such as ``bos_token``."""

    def __init__(self, source: str, special: Mapping[str, str] | None = None):
        self.source, self.special = source, dict(special or {})
        self._compiled = _compiled(source)

    def __call__(self, messages: Sequence[Message], *, prompt: bool = True, **more: Any) -> str:
        """The text of messages, with the beginning of an answer if ``prompt``.

        Raises ``UserError`` where the template refuses them (roles that must alternate, say).
        """
        import jinja2

        try:
            return self._compiled.render(messages=messages, add_generation_prompt=prompt, **self.special, **more)
        except jinja2.TemplateError as error:
            raise UserError(f"the chat template refuses these messages: {error}") from error


def plain(tokenizer: Tokenizer) -> Template:
    """The template of a checkpoint that has none: ``user:``, a line of its own, the text, the token that stops."""
    return Template(_PLAIN, {"eos_token": tokenizer.decode(tokenizer.stop[:1])})


def template_of(directory: Path | str, otherwise: Template | None = None) -> Template:
    """The chat template of a checkpoint. Raises ``UserError`` if it has none, and there is no other one."""
    directory = Path(directory)
    path = directory / "tokenizer_config.json"
    config = read_json(path) if path.exists() else {}
    alone = directory / "chat_template.jinja"
    source = alone.read_text() if alone.exists() else config.get("chat_template")
    if isinstance(source, list):  # several, by name
        source = {each["name"]: each["template"] for each in source}.get("default")
    if source is None:
        if otherwise is None:
            raise UserError(f"{directory} has no chat template")
        return otherwise
    special = {k: v["content"] if isinstance(v, dict) else v for k, v in config.items() if k.endswith("_token") and v}
    return Template(source, {k: v for k, v in special.items() if isinstance(v, str)})


@dataclasses.dataclass(frozen=True)
class Conversation:
    """Token ids, the owner of each, and the messages that they are."""

    tokens: tuple[int, ...] = ()
    owners: tuple[int, ...] = ()
    messages: tuple[Message, ...] = ()

    def heard(self, template: Template, tokenizer: Tokenizer, *messages: Message, **more: Any) -> Conversation:
        """With what the world says next (user, tool or system messages), and the beginning of an answer.

        If the actor's last utterance was cut before it stopped, the template's end of a turn is added, as its own.
        ``more`` goes to the template (``tools``, ``enable_thinking`` ...).
        """
        whole = (*self.messages, *messages)
        # The last utterance alone is marked: templates treat what came before it in ways of their own.
        last = max((i for i, m in enumerate(self.messages) if m["role"] == "assistant"), default=None)
        if last is None:
            text = template(whole, **more)
        else:
            marked = [*whole]
            marked[last] = {**whole[last], "content": _MARK}
            _, found, text = template(marked, **more).rpartition(_MARK)
            if not found:
                raise UserError("the chat template leaves out what was said last: it cannot be used for conversations")
            if self.tokens[-1] in tokenizer.stop:
                space, _, rest = text.partition(tokenizer.decode(self.tokens[-1:]))
                text = text if space.strip() else rest  # some put a space before the token that stops
        ids, spans = tokenizer.spans(text)
        owners = _owners(text, spans, messages)
        return Conversation((*self.tokens, *ids), (*self.owners, *owners), whole)

    def said(self, tokenizer: Tokenizer, ids: Sequence[int], seat: int = 0) -> Conversation:
        """With an utterance, as it was sampled: these very ids."""
        spoken = [i for i in ids if i not in tokenizer.stop]
        message = {"role": "assistant", "content": tokenizer.decode(spoken)}
        return Conversation((*self.tokens, *ids), (*self.owners, *[ACTOR + seat] * len(ids)), (*self.messages, message))

    def written(self, template: Template, tokenizer: Tokenizer, content: str) -> Conversation:
        """With an utterance that somebody wrote, tokenised by itself, between what the template puts around it."""
        before, _, after = template((*self.messages, {"role": "assistant", "content": _MARK}), prompt=False).rpartition(
            _MARK
        )
        asked = template(self.messages)
        lead = before.removeprefix(asked) if before.startswith(asked) else ""
        found = [(after.find(tokenizer.decode([stop])), stop) for stop in tokenizer.stop]
        at, stop = min([each for each in found if each[0] >= 0], default=(0, tokenizer.stop[0]))
        return self.said(tokenizer, [*tokenizer.encode(lead + content + after[:at]), stop])


def _owners(text: str, spans: Sequence[tuple[int, int]], messages: Sequence[Message]) -> list[int]:
    """Whose each token is: the world's where it overlaps what a message says, else the template's."""
    inside, at = [False] * (len(text) + 1), 0
    for message in messages:
        content = message.get("content")
        content = content.strip() if isinstance(content, str) else ""
        found = text.find(content, at) if content else -1
        if found >= 0:
            at = found + len(content)
            inside[found:at] = [True] * len(content)
    return [WORLD if any(inside[begin:end]) else TEMPLATE for begin, end in spans]


def _compiled(source: str) -> Any:
    try:
        import jinja2
        import jinja2.ext
        import jinja2.sandbox
    except ImportError as error:
        raise missing_extra("jinja2", "language") from error

    class Generation(jinja2.ext.Extension):
        """``{% generation %}``, by which some templates mark what the actor says: its body as it is."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> Any:
            """Leave the tag out."""
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def refuse(message: str) -> None:
        raise jinja2.TemplateError(message)

    extensions: list[Any] = ["jinja2.ext.loopcontrols", Generation]
    world = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
    world.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    world.globals["raise_exception"] = refuse
    try:
        return world.from_string(source)
    except jinja2.TemplateError as error:
        raise UserError(f"the chat template cannot be read: {error}") from error
