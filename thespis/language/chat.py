"""Dialogues as token ids: responses keep exactly the tokens that were sampled, whatever a template does to text.

A checkpoint's chat template (Jinja) turns messages into text. Only the text *between* two responses of the actor is
taken from it and tokenized: the template is rendered with a placeholder for the response, and what comes after the
placeholder is what the environment and the template add. So no token of the actor is tokenized again, and every token
has an owner.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from thespis.core.errors import UserError
from thespis.language.checkpoints import checkpoint_directory
from thespis.language.hf_weights import read_json
from thespis.language.tokenizer import Tokenizer

Message = Mapping[str, Any]
TEMPLATE, ENVIRONMENT, ACTOR = 0, 1, 2
"""Owner of a token: the template, the environment, or the actor that is player ``owner - ACTOR``."""
ROLES = ("system", "user", "assistant", "tool")
"""Roles of messages."""
_PLACEHOLDER = "\N{OBJECT REPLACEMENT CHARACTER}said\N{OBJECT REPLACEMENT CHARACTER}"

_DEFAULT_TEMPLATE = (
    "{% for m in messages %}{{ m.role + ':\n' + m.content + eos_token + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant:\n' }}{% endif %}"
)


class ChatTemplate:
    """A chat template, rendered as transformers renders it. ``special_tokens``: names such as ``bos_token``."""

    def __init__(self, source: str, special_tokens: Mapping[str, str] | None = None):
        self.source, self.special_tokens = source, dict(special_tokens or {})
        self._compiled = _compile_template(source)

    def __call__(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = True, **template_kwargs: Any
    ) -> str:
        """The text of messages, with the beginning of a response if ``add_generation_prompt``.

        Raises ``UserError`` where the template refuses them (e.g. roles that must alternate) or fails.
        """
        import jinja2

        try:
            return self._compiled.render(
                messages=messages, add_generation_prompt=add_generation_prompt, **self.special_tokens, **template_kwargs
            )
        except jinja2.TemplateError as error:
            raise UserError(f"the chat template refuses these messages: {error}") from error
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
            raise UserError(f"the chat template fails on these messages: {type(error).__name__}: {error}") from error


def find_role_error(messages: Sequence[Message]) -> tuple[int, str] | None:
    """The first message whose role is unknown or out of order, and what is wrong; ``None`` if there is none.

    System messages come first, the assistant answers a message of another role, and a tool answers the assistant.
    """
    previous = None
    for i, message in enumerate(messages):
        role = message["role"]
        if role not in ROLES:
            return i, f"has the role {role[:80]!r}: roles are {', '.join(ROLES)}"
        if role == "system" and previous not in (None, "system"):
            return i, f"has the role system after the role {previous}: system messages come first"
        if role == "assistant" and previous is None:
            return i, "has the role assistant and is the first: there is no prompt before it"
        if role == "assistant" and previous == "assistant":
            return i, "has the role assistant after the role assistant: join the two, or put a prompt between them"
        if role == "tool" and previous not in ("assistant", "tool"):
            return i, f"has the role tool after {f'the role {previous}' if previous else 'nothing'}: tools answer calls"
        previous = role
    return None


def default_template(tokenizer: Tokenizer) -> ChatTemplate:
    """The template of checkpoints without one: ``user:``, a line break, the text and the stop token."""
    return ChatTemplate(_DEFAULT_TEMPLATE, {"eos_token": tokenizer.decode(tokenizer.stop_tokens[:1])})


def load_template(directory: Path | str, default: ChatTemplate | None = None) -> ChatTemplate:
    """The chat template of a checkpoint. Raises ``UserError`` if it has none, and ``default`` is ``None``."""
    directory = checkpoint_directory(directory)
    path = directory / "tokenizer_config.json"
    config = read_json(path) if path.exists() else {}
    template_path = directory / "chat_template.jinja"
    source = template_path.read_text() if template_path.exists() else config.get("chat_template")
    if isinstance(source, list):  # several templates, by name
        source = {entry["name"]: entry["template"] for entry in source}.get("default")
    if source is None:
        if default is None:
            raise UserError(f"{directory} has no chat template")
        return default
    special_tokens = {
        k: v["content"] if isinstance(v, dict) else v for k, v in config.items() if k.endswith("_token") and v
    }
    return ChatTemplate(source, {k: v for k, v in special_tokens.items() if isinstance(v, str)})


@dataclasses.dataclass(frozen=True)
class Conversation:
    """A dialogue: token ids, the owner of each, and the messages that they stand for."""

    tokens: tuple[int, ...] = ()
    owners: tuple[int, ...] = ()
    messages: tuple[Message, ...] = ()

    def add_messages(
        self, template: ChatTemplate, tokenizer: Tokenizer, *messages: Message, **template_kwargs: Any
    ) -> Conversation:
        """Append messages of the environment (user, tool or system), and the generation prompt of the next response.

        If the actor's last response was cut before a stop token, the template's end of a turn is added and owned by the
        template. ``template_kwargs`` go to the template (``tools``, ``enable_thinking`` ...).
        """
        all_messages = (*self.messages, *messages)
        # Only the last response becomes a placeholder: templates may treat earlier ones differently.
        last = max((i for i, m in enumerate(self.messages) if m["role"] == "assistant"), default=None)
        if last is None:
            text = template(all_messages, **template_kwargs)
        else:
            with_placeholder = [*all_messages]
            with_placeholder[last] = {**all_messages[last], "content": _PLACEHOLDER}
            _, separator, text = template(with_placeholder, **template_kwargs).rpartition(_PLACEHOLDER)
            if not separator:
                raise UserError("the chat template leaves out the last response: it cannot be used for dialogues")
            if self.tokens[-1] in tokenizer.stop_tokens:
                space, _, rest = text.partition(tokenizer.decode(self.tokens[-1:]))
                text = text if space.strip() else rest  # some templates put a space before the stop token
        tokens, spans = tokenizer.encode_with_offsets(text)
        owners = _token_owners(text, spans, messages)
        return Conversation((*self.tokens, *tokens), (*self.owners, *owners), all_messages)

    def add_response(self, tokenizer: Tokenizer, tokens: Sequence[int], player: int = 0) -> Conversation:
        """Append a response, exactly the tokens that were sampled."""
        text_tokens = [i for i in tokens if i not in tokenizer.stop_tokens]
        message = {"role": "assistant", "content": tokenizer.decode(text_tokens)}
        return Conversation(
            (*self.tokens, *tokens), (*self.owners, *[ACTOR + player] * len(tokens)), (*self.messages, message)
        )

    def add_response_text(self, template: ChatTemplate, tokenizer: Tokenizer, text: str) -> Conversation:
        """Append a written response, tokenized by itself, with what the template puts around it."""
        before, _, after = template(
            (*self.messages, {"role": "assistant", "content": _PLACEHOLDER}), add_generation_prompt=False
        ).rpartition(_PLACEHOLDER)
        prompt = template(self.messages)
        prefix = before.removeprefix(prompt) if before.startswith(prompt) else ""
        stops = [(after.find(tokenizer.decode([stop])), stop) for stop in tokenizer.stop_tokens]
        end, stop = min([entry for entry in stops if entry[0] >= 0], default=(0, tokenizer.stop_tokens[0]))
        return self.add_response(tokenizer, [*tokenizer.encode(prefix + text + after[:end]), stop])


def _token_owners(text: str, spans: Sequence[tuple[int, int]], messages: Sequence[Message]) -> list[int]:
    """The owner of each token: the environment where it overlaps the content of a message, otherwise the template."""
    inside, position = [False] * (len(text) + 1), 0
    for message in messages:
        content = message.get("content")
        content = content.strip() if isinstance(content, str) else ""
        start = text.find(content, position) if content else -1
        if start >= 0:
            position = start + len(content)
            inside[start:position] = [True] * len(content)
    return [ENVIRONMENT if any(inside[begin:end]) else TEMPLATE for begin, end in spans]


def _compile_template(source: str) -> Any:
    import jinja2
    import jinja2.ext
    import jinja2.sandbox

    class Generation(jinja2.ext.Extension):
        """``{% generation %}``, which marks the actor's text in some templates: its body is rendered unchanged."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> Any:
            """Drop the tag and return the statements inside the block."""
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def refuse(message: str) -> None:
        raise jinja2.TemplateError(message)

    extensions: list[Any] = ["jinja2.ext.loopcontrols", Generation]
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
    env.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    env.globals["raise_exception"] = refuse
    try:
        return env.from_string(source)
    except jinja2.TemplateError as error:
        raise UserError(f"the chat template cannot be read: {error}") from error
