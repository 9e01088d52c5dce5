"""Conversations in twelve chat templates, with tool messages and cut responses: sampled tokens never change."""

from __future__ import annotations

import json

import numpy as np
import pytest
from chat_templates import TEMPLATES
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers, trainers

from thespis.core.errors import UserError
from thespis.language.chat import ACTOR, ENVIRONMENT, TEMPLATE, ChatTemplate, Conversation, load_template
from thespis.language.tokenizer import Tokenizer, byte_tokenizer, load_tokenizer

SPECIAL = {"bos_token": "<s>"}
WORDS = [
    "the",
    "door",
    "to",
    "north",
    "is",
    "locked",
    "and",
    "lamp",
    "on",
    "table",
    "gives",
    "some",
    "light",
    "you",
    "take",
    "key",
]

SPACED = {"instructions in brackets", "system inside the first instruction", "headings"}
"""Templates that put spaces around responses which their generation prompts lack."""


@pytest.fixture(scope="module")
def library():
    """A byte-level BPE with merges: most random tokenizations of a text are not its own."""
    tokenizer = Library(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    ends = sorted({"<s>", *(end for _, end in TEMPLATES.values())})
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=340, special_tokens=ends, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([" ".join(WORDS)] * 20, trainer)
    return tokenizer


def random_response(tokenizer: Tokenizer, rng: np.random.Generator) -> list[int]:
    """A text in random tokens: a sampler may produce them, the tokenizer would not."""
    text = " ".join(rng.choice(WORDS, rng.integers(1, 6)))
    tokens, start = [], 0
    while start < len(text):
        lengths = [n for n in range(1, 6) if len(tokenizer.encode(text[start : start + n])) == 1]
        n = int(rng.choice([f for f in lengths if start + f <= len(text)]))
        tokens += tokenizer.encode(text[start : start + n])
        start += n
    return tokens


def without_spaces(text: str) -> str:
    return "".join(text.split())


@pytest.mark.parametrize("name", TEMPLATES)
def test_sampled_tokens_are_never_changed(name, library):
    source, end = TEMPLATES[name]
    template, tokenizer = ChatTemplate(source, SPECIAL), Tokenizer(library, (library.token_to_id(end),), 0)
    rng, num_retokenized = np.random.default_rng(len(name)), 0
    for _ in range(25):
        prompt = [{"role": "user", "content": " ".join(rng.choice(WORDS, 3))}]
        if rng.random() < 0.5 and name != "roles must alternate":
            prompt.insert(0, {"role": "system", "content": "you walk through a house"})
        conversation, sampled, messages = Conversation().add_messages(template, tokenizer, *prompt), [], list(prompt)
        for _ in range(int(rng.integers(1, 5))):
            tokens = random_response(tokenizer, rng)
            stopped = rng.random() < 0.7
            conversation = conversation.add_response(
                tokenizer, [*tokens, *tokenizer.stop_tokens] if stopped else tokens
            )
            sampled += [*tokens, *tokenizer.stop_tokens] if stopped else tokens
            num_retokenized += tokenizer.encode(tokenizer.decode(tokens)) != tokens
            messages.append({"role": "assistant", "content": tokenizer.decode(tokens)})
            role = "tool" if name in ("tools as JSON", "chatml") and rng.random() < 0.5 else "user"
            message = {"role": role, "content": " ".join(rng.choice(WORDS, int(rng.integers(1, 5))))}
            conversation, messages = conversation.add_messages(template, tokenizer, message), [*messages, message]
        owners = np.array(conversation.owners)
        assert len(conversation.tokens) == len(owners)
        np.testing.assert_array_equal(np.array(conversation.tokens)[owners == ACTOR], sampled)
        text, expected = tokenizer.decode(conversation.tokens), template(messages)
        assert text == expected or (name in SPACED and without_spaces(text) == without_spaces(expected))
        assert list(conversation.messages) == messages
        env_text = tokenizer.decode(
            [t for t, owner in zip(conversation.tokens, owners, strict=True) if owner == ENVIRONMENT]
        )
        assert all(m["content"].split()[0] in env_text for m in messages if m["role"] == "user")
        assert (owners == TEMPLATE).any()
    assert num_retokenized > 20, "no response is tokenized differently: this test checks nothing"


def test_earlier_reasoning_stays_in_the_tokens(library):
    """A template may drop earlier reasoning: sampled tokens stay, otherwise importance ratios would be wrong."""
    source, end = TEMPLATES["chatml, thoughts of earlier turns left out"]
    template, tokenizer = ChatTemplate(source), Tokenizer(library, (library.token_to_id(end),), 0)
    conversation = Conversation().add_messages(template, tokenizer, {"role": "user", "content": "the door"})
    tokens = [*tokenizer.encode("so the key</think>take the key"), *tokenizer.stop_tokens]
    conversation = conversation.add_response(tokenizer, tokens).add_messages(
        template, tokenizer, {"role": "user", "content": "locked"}
    )
    assert "so the key</think>" in tokenizer.decode(conversation.tokens) and "so the key" not in template(
        conversation.messages
    )
    np.testing.assert_array_equal(np.array(conversation.tokens)[np.array(conversation.owners) == ACTOR], tokens)


def test_responses_belong_to_their_players():
    tokenizer = byte_tokenizer(["</t>"])
    conversation = (
        Conversation()
        .add_response(tokenizer, tokenizer.encode("a"), player=0)
        .add_response(tokenizer, tokenizer.encode("b"), player=1)
    )
    assert conversation.owners == (ACTOR, ACTOR + 1)


def test_wrong_templates_and_messages_are_refused():
    with pytest.raises(UserError, match="the chat template cannot be read"):
        ChatTemplate("{% for %}")
    template = ChatTemplate(TEMPLATES["roles must alternate"][0])
    with pytest.raises(UserError, match="refuses these messages: roles must alternate"):
        template([{"role": "user", "content": "a"}] * 2)
    tokenizer, first_only = byte_tokenizer(), ChatTemplate("{{ messages[0].content }}")
    conversation = (
        Conversation()
        .add_messages(first_only, tokenizer, {"role": "user", "content": "a"})
        .add_response(tokenizer, tokenizer.stop_tokens)
    )
    with pytest.raises(UserError, match="leaves out the last response"):
        conversation.add_messages(first_only, tokenizer, {"role": "user", "content": "b"})


def test_templates_are_sandboxed():
    with pytest.raises(UserError, match="refuses"):
        ChatTemplate("{{ messages.__class__.__mro__ }}{{ ''.__class__.__base__.__subclasses__() }}")([])


def test_templates_and_tokenizers_of_checkpoints(tmp_path):
    with pytest.raises(UserError, match=r"has no tokenizer\.json"):
        load_tokenizer(tmp_path)
    with pytest.raises(UserError, match="has no chat template"):
        load_template(tmp_path)
    byte_tokenizer(["</t>"]).save(tmp_path)
    with pytest.raises(UserError, match="says eos_token_id"):
        load_tokenizer(tmp_path)
    config = {
        "eos_token": {"content": "</t>"},
        "pad_token": "<pad>",
        "bos_token": "<s>",
        "chat_template": "{{ bos_token }}!",
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.stop_tokens == (tokenizer.token_to_id("</t>"),) and tokenizer.pad_token == tokenizer.token_to_id(
        "<pad>"
    )
    assert load_template(tmp_path)([]) == "<s>!"
    named = [{"name": "tool", "template": "no"}, {"name": "default", "template": "yes"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": named}))
    assert load_template(tmp_path)([]) == "yes"
    (tmp_path / "chat_template.jinja").write_text("alone")
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 7]}))
    assert load_template(tmp_path)([]) == "alone" and load_tokenizer(tmp_path).stop_tokens == (5, 7)
