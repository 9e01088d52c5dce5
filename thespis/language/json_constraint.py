"""Responses constrained to a JSON schema: masks of the tokens that can continue a valid document, from llguidance.

The automaton over bytes runs on the host, between two tokens. Whitespace is that of ``json.dumps``: ``", "`` and
``": "``, and none elsewhere. A schema that sets no limits (lengths of strings and lists, ranges of numbers) can take
more tokens than a response may have; the response is then cut, and its finish reason is ``length``.
"""

from __future__ import annotations

import json
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree

from thespis.core.errors import missing_extra
from thespis.language.engine import RequestError
from thespis.language.tokenizer import Tokenizer

ANY_OBJECT = '{"type": "object"}'
"""The schema of any JSON object."""
MAX_SCHEMA_LENGTH = 100_000
"""Maximum number of characters of a schema."""
_STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


class JsonConstraints:
    """Maker of constraints for one tokenizer and ``vocab_size`` logits.

    Raises :class:`RequestError` if the tokenizer cannot be used, or llguidance is not installed.
    """

    def __init__(self, tokenizer: Tokenizer, vocab_size: int):
        try:
            import llguidance
        except ImportError as error:
            raise RequestError(str(missing_extra("llguidance", "json")), "response_format") from error
        self._library, self.vocab_size = llguidance, vocab_size
        try:
            self._tokenizer = llguidance.LLTokenizer(
                tokenizer.backend.to_str(), n_vocab=vocab_size, eos_token=[*tokenizer.stop_tokens]
            )
        except ValueError as error:
            raise RequestError(
                f"this model's tokenizer cannot write JSON, leave response_format out ({error})", "response_format"
            ) from error

    def check(self, schema: str) -> None:
        """Raise :class:`RequestError` for a schema that is invalid or not supported."""
        error = self._library.LLMatcher.validate_grammar(self._grammar(schema), self._tokenizer)
        if error:
            reason = str(error).strip().splitlines()[0][:300]
            raise RequestError(f"response_format: this schema is not supported: {reason}", "response_format")

    def start(self, schema: str) -> JsonConstraint:
        """The constraint of one response."""
        return JsonConstraint(self._library.LLMatcher(self._tokenizer, self._grammar(schema)), self.vocab_size)

    def _grammar(self, schema: str) -> Any:
        if len(schema) > MAX_SCHEMA_LENGTH:
            raise RequestError(f"a schema may have at most {MAX_SCHEMA_LENGTH} characters", "response_format")
        try:
            return self._library.LLMatcher.grammar_from_json_schema(schema, overrides=_STYLE)
        except ValueError as error:
            raise RequestError(f"response_format: this schema is invalid: {error}", "response_format") from error


class JsonConstraint:
    """The constraint of one response, which follows its tokens."""

    def __init__(self, matcher: Any, vocab_size: int):
        self._matcher, self._vocab_size = matcher, vocab_size

    def allowed_tokens(self) -> Bool[np.ndarray, " vocabulary"]:
        """The tokens that can come next; the stop tokens where the document is complete."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), "uint8")
        return np.unpackbits(bits, bitorder="little")[: self._vocab_size].astype(bool)

    def advance(self, token: int) -> None:
        """Follow a token, which was allowed."""
        if not self._matcher.consume_token(token):
            raise RuntimeError(f"the constraint does not allow the token {token}: {self._matcher.get_error()}")


class MaskGrammar(eqx.Module):
    """A grammar for the next token alone: the given mask."""

    mask: Bool[Array, "row vocabulary"]

    def init_state(self, batch_size: int) -> PyTree:
        """A state without information, of the right batch size."""
        return jnp.zeros(batch_size, bool)

    def allowed_tokens(self, state: PyTree, vocab_size: int) -> Bool[Array, "row vocabulary"] | None:
        """The mask."""
        return self.mask

    def advance(self, state: PyTree, token: Int[Array, " row"]) -> tuple[PyTree, Bool[Array, " row"]]:
        """Responses are never complete by this grammar: a stop token ends them."""
        return state, state


def schema_of(response_format: Any) -> str | None:
    """The schema, as JSON text, of a ``response_format`` of the OpenAI API; ``None`` for text.

    Raises :class:`RequestError` for anything but ``text``, ``json_object`` and ``json_schema``.
    """
    match response_format:
        case {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return ANY_OBJECT
        case {"type": "json_schema", "json_schema": {"schema": dict() | bool() as schema}}:
            return json.dumps(schema)
        case {"type": "json_schema"}:
            raise RequestError("response_format.json_schema.schema must be a JSON schema", "response_format")
    raise RequestError("response_format.type must be text, json_object or json_schema", "response_format")
