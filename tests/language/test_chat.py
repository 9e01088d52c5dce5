"""Conversations: in twelve templates, with tool results and utterances cut short, no sampled id is ever changed."""

from __future__ import annotations

import json

import numpy as np
import pytest
from templates import TEMPLATES
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers, trainers

from thespis.core.errors import UserError
from thespis.language.chat import ACTOR, TEMPLATE, WORLD, Conversation, Template, template_of
from thespis.language.tokens import Tokenizer, characters, tokenizer_of

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
"""Around what was said these put spaces that their prompts lack, so the actor did not see them."""


@pytest.fixture(scope="module")
def library():
    """A byte-level BPE with merges: most ways to cut a text into its tokens are not the one it would choose."""
    inner = Library(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    ends = sorted({"<s>", *(end for _, end in TEMPLATES.values())})
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=340, special_tokens=ends, initial_alphabet=alphabet, show_progress=False)
    inner.train_from_iterator([" ".join(WORDS)] * 20, trainer)
    return inner


def speech(tokenizer: Tokenizer, rng: np.random.Generator) -> list[int]:
    """A text cut at random into tokens: what a sampler may say, and a tokenizer would not."""
    text = " ".join(rng.choice(WORDS, rng.integers(1, 6)))
    ids, at = [], 0
    while at < len(text):
        fitting = [n for n in range(1, 6) if len(tokenizer.encode(text[at : at + n])) == 1]
        n = int(rng.choice([f for f in fitting if at + f <= len(text)]))
        ids += tokenizer.encode(text[at : at + n])
        at += n
    return ids


def joined(text: str) -> str:
    return "".join(text.split())


@pytest.mark.parametrize("name", TEMPLATES)
def test_no_sampled_id_is_changed(name, library):
    source, end = TEMPLATES[name]
    template, tokenizer = Template(source, SPECIAL), Tokenizer(library, (library.token_to_id(end),), 0)
    rng, again = np.random.default_rng(len(name)), 0
    for _ in range(25):
        world = [{"role": "user", "content": " ".join(rng.choice(WORDS, 3))}]
        if rng.random() < 0.5 and name != "roles must alternate":
            world.insert(0, {"role": "system", "content": "you walk through a house"})
        talk, sampled, told = Conversation().heard(template, tokenizer, *world), [], list(world)
        for _ in range(int(rng.integers(1, 5))):
            ids = speech(tokenizer, rng)
            stopped = rng.random() < 0.7
            talk = talk.said(tokenizer, [*ids, *tokenizer.stop] if stopped else ids)
            sampled += [*ids, *tokenizer.stop] if stopped else ids
            again += tokenizer.encode(tokenizer.decode(ids)) != ids
            told.append({"role": "assistant", "content": tokenizer.decode(ids)})
            role = "tool" if name in ("tools as JSON", "chatml") and rng.random() < 0.5 else "user"
            answer = {"role": role, "content": " ".join(rng.choice(WORDS, int(rng.integers(1, 5))))}
            talk, told = talk.heard(template, tokenizer, answer), [*told, answer]
        owners = np.array(talk.owners)
        assert len(talk.tokens) == len(owners)
        np.testing.assert_array_equal(np.array(talk.tokens)[owners == ACTOR], sampled)
        text, wanted = tokenizer.decode(talk.tokens), template(told)
        assert text == wanted or (name in SPACED and joined(text) == joined(wanted))
        assert list(talk.messages) == told
        heard = tokenizer.decode([t for t, who in zip(talk.tokens, owners, strict=True) if who == WORLD])
        assert all(m["content"].split()[0] in heard for m in told if m["role"] == "user")
        assert (owners == TEMPLATE).any()
    assert again > 20, "what was said would have been tokenised otherwise: else this test shows nothing"


def test_thoughts_stay_in_what_the_learner_sees(library):
    """A template may leave earlier thoughts out: what was sampled stays, or ratios would be those of other texts."""
    source, end = TEMPLATES["chatml, thoughts of earlier turns left out"]
    template, tokenizer = Template(source), Tokenizer(library, (library.token_to_id(end),), 0)
    talk = Conversation().heard(template, tokenizer, {"role": "user", "content": "the door"})
    ids = [*tokenizer.encode("so the key</think>take the key"), *tokenizer.stop]
    talk = talk.said(tokenizer, ids).heard(template, tokenizer, {"role": "user", "content": "locked"})
    assert "so the key</think>" in tokenizer.decode(talk.tokens) and "so the key" not in template(talk.messages)
    np.testing.assert_array_equal(np.array(talk.tokens)[np.array(talk.owners) == ACTOR], ids)


def test_seats_own_their_words():
    tokenizer = characters(["</t>"])
    talk = Conversation().said(tokenizer, tokenizer.encode("a"), seat=0).said(tokenizer, tokenizer.encode("b"), seat=1)
    assert talk.owners == (ACTOR, ACTOR + 1)


def test_mistakes_are_told():
    with pytest.raises(UserError, match="the chat template cannot be read"):
        Template("{% for %}")
    template = Template(TEMPLATES["roles must alternate"][0])
    with pytest.raises(UserError, match="refuses these messages: roles must alternate"):
        template([{"role": "user", "content": "a"}] * 2)
    tokenizer, deaf = characters(), Template("{{ messages[0].content }}")
    talk = Conversation().heard(deaf, tokenizer, {"role": "user", "content": "a"}).said(tokenizer, tokenizer.stop)
    with pytest.raises(UserError, match="leaves out what was said last"):
        talk.heard(deaf, tokenizer, {"role": "user", "content": "b"})


def test_a_template_cannot_reach_out():
    with pytest.raises(UserError, match="refuses"):
        Template("{{ messages.__class__.__mro__ }}{{ ''.__class__.__base__.__subclasses__() }}")([])


def test_templates_and_tokenizers_of_checkpoints(tmp_path):
    with pytest.raises(UserError, match=r"has no tokenizer\.json"):
        tokenizer_of(tmp_path)
    with pytest.raises(UserError, match="has no chat template"):
        template_of(tmp_path)
    characters(["</t>"]).save(tmp_path)
    with pytest.raises(UserError, match="says eos_token_id"):
        tokenizer_of(tmp_path)
    config = {
        "eos_token": {"content": "</t>"},
        "pad_token": "<pad>",
        "bos_token": "<s>",
        "chat_template": "{{ bos_token }}!",
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    made = tokenizer_of(tmp_path)
    assert made.stop == (made.id_of("</t>"),) and made.pad == made.id_of("<pad>")
    assert template_of(tmp_path)([]) == "<s>!"
    named = [{"name": "tool", "template": "no"}, {"name": "default", "template": "yes"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": named}))
    assert template_of(tmp_path)([]) == "yes"
    (tmp_path / "chat_template.jinja").write_text("alone")
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 7]}))
    assert template_of(tmp_path)([]) == "alone" and tokenizer_of(tmp_path).stop == (5, 7)
