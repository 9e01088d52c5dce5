"""Responses constrained to JSON schemas: a model with random weights writes documents that parse and validate."""

import importlib.util
import json
import sys

import jax
import pytest

from thespis.language.engine import GenerationConfig, RequestError
from thespis.language.json_constraint import ANY_OBJECT, MAX_SCHEMA_LENGTH, schema_of
from thespis.language.local_engine import LocalEngine
from thespis.language.tokenizer import byte_tokenizer, word_tokenizer
from thespis.nets.decoder import DecoderConfig, init_decoder
from thespis.runtime.keys import seed_key

pytestmark = pytest.mark.skipif(importlib.util.find_spec("llguidance") is None, reason="llguidance is not installed")

POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer", "minimum": -9, "maximum": 9}, "kind": {"enum": ["dot", "é", None]}},
    "required": ["x", "kind"],
    "additionalProperties": False,
}
SCHEMAS = {
    "object": POINT,
    "list": {"type": "array", "items": POINT, "minItems": 1, "maxItems": 2},
    "text": {"type": "object", "properties": {"s": {"type": "string", "maxLength": 5}}, "required": ["s"]}
    | {"additionalProperties": False},
    "choice": {"anyOf": [{"type": "boolean"}, {"const": {"a": [1, 2]}}]},
    "reference": {"$defs": {"p": POINT}, "type": "object", "properties": {"p": {"$ref": "#/$defs/p"}}}
    | {"required": ["p"], "additionalProperties": False},
}
MESSAGE = [{"role": "user", "content": "hm"}]


def make_engine(tokenizer, extra=5, **options):
    """A decoder with random weights, with a few more logits than the tokenizer has tokens."""
    config = DecoderConfig(tokenizer.vocab_size + extra, 16, 1, 1, 1, 16, 16)
    model = jax.jit(lambda key: init_decoder(config, key))(seed_key(0))
    return LocalEngine(model, tokenizer, batch_size=6, **options)


@pytest.fixture(scope="module")
def engine():
    return make_engine(byte_tokenizer(), max_length=256)


@pytest.mark.long
def test_documents_validate(engine):
    """All schemas; sampled and greedy, alone and beside responses without a constraint."""
    import jsonschema

    for name, schema in SCHEMAS.items():
        config = GenerationConfig(temperature=2.0, max_tokens=120, seed=3, n=6, json_schema=json.dumps(schema))
        (completion,) = engine.generate([MESSAGE], config)
        assert [choice.finish_reason for choice in completion.choices] == ["stop"] * 6, name
        documents = [json.loads(choice.text) for choice in completion.choices]
        for document in documents:
            jsonschema.validate(document, schema)
        assert len({json.dumps(document) for document in documents}) > 1, "all are the same"


@pytest.mark.slow
def test_a_constraint_does_not_change_other_responses(engine):
    free = GenerationConfig(max_tokens=8, seed=1)
    constrained = GenerationConfig(max_tokens=120, seed=1, json_schema=json.dumps(POINT))
    prompts = [engine.tokenize_prompt(MESSAGE, config) for config in (free, constrained)]
    texts = ["", ""]
    for i, chunk in engine.stream_batch(prompts):
        texts[i] += chunk.text
    assert texts[0] == engine.generate([MESSAGE], free)[0].text and json.loads(texts[1])["kind"] in ("dot", "é", None)


def test_an_object_without_limits_is_cut_at_the_limit_of_tokens(engine):
    completion = engine.generate([MESSAGE], GenerationConfig(max_tokens=70, json_schema=ANY_OBJECT, seed=0))[0]
    assert completion.text.startswith("{") and completion.choices[0].finish_reason in ("length", "stop")


def test_what_cannot_be_done_is_refused(engine, monkeypatch):
    def ask(schema, engine=engine):
        engine.generate([MESSAGE], GenerationConfig(json_schema=schema))

    with pytest.raises(RequestError, match="Invalid type: objekt"):
        ask('{"type": "objekt"}')
    with pytest.raises(RequestError, match="at most 100000 characters"):
        ask(json.dumps({"const": "a" * MAX_SCHEMA_LENGTH}))
    with pytest.raises(RequestError, match="tokenizer cannot write JSON"):
        ask(ANY_OBJECT, make_engine(word_tokenizer(["yes", "no"])))
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(RequestError, match=r"thespis-rl\[json\]"):
        ask(ANY_OBJECT, make_engine(byte_tokenizer()))


def test_response_formats_of_the_openai_api():
    assert schema_of({"type": "text"}) is None and schema_of({"type": "json_object"}) == ANY_OBJECT
    named = {"type": "json_schema", "json_schema": {"name": "p", "strict": True, "schema": POINT}}
    assert json.loads(schema_of(named)) == POINT
    for wrong in ({"type": "xml"}, "json", {"type": "json_schema"}, {"type": "json_schema", "json_schema": {}}):
        with pytest.raises(RequestError, match="response_format"):
            schema_of(wrong)
