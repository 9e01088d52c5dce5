"""Conversations in lines of JSON: ids are those of template and answers, and every wrong line is told by its number."""

from __future__ import annotations

import json

import equinox as eqx
import jax
import numpy as np
import pytest
from templates import TEMPLATES

import thespis
from thespis.core.errors import UserError
from thespis.core.feeds import Pairs
from thespis.core.keys import key_of
from thespis.data.logged import source_for
from thespis.language import weights
from thespis.language.chat import Template, plain
from thespis.language.tokens import characters
from thespis.language.written import read_lines
from thespis.nets.decoder import Shape, decoder
from thespis.sources import from_lines

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "One?"},
    {"role": "assistant", "content": "First."},
    {"role": "user", "content": "And two?"},
    {"role": "assistant", "content": "Second, then."},
]


def lines(path, *records):
    path.write_text("\n".join(json.dumps(x) if isinstance(x, dict) else x for x in records) + "\n")
    return path


@pytest.mark.parametrize("name", list(TEMPLATES))
def test_ids_are_those_of_the_template_and_only_answers_are_said(tmp_path, name):
    source, end = TEMPLATES[name]
    tokenizer = characters(special=[end])
    tokenizer.stop = (tokenizer.id_of("<end>"), tokenizer.id_of(end))
    template = Template(source, {"bos_token": "", "eos_token": end})
    record = {"messages": CHAT, "reward": 2}
    (talk,), together = read_lines(lines(tmp_path / "a.jsonl", record), template, tokenizer)
    assert together == 0 and talk.rewards == (0.0, 2.0)
    whole = template(CHAT, prompt=False)
    assert whole.startswith(tokenizer.decode(talk.tokens))
    assert not whole[len(tokenizer.decode(talk.tokens)) :].strip()
    said = [tokenizer.decode(ids) for ids in talk.said]
    assert ["".join(text.split()) for text in said] == [f"First.{end}", f"Second,then.{end}"]
    for start, ids in zip(talk.starts, talk.said, strict=True):
        assert talk.tokens[start : start + len(ids)] == ids
    assert talk.news == max(talk.starts[0], talk.starts[1] - talk.starts[0] - len(talk.said[0]))


def test_pairs_and_judged_answers(tmp_path):
    tokenizer = characters()
    template = plain(tokenizer)
    pair = {"prompt": "Hm?", "chosen": "Yes.", "rejected": [{"role": "assistant", "content": "No."}]}
    talks, together = read_lines(lines(tmp_path / "a.jsonl", pair, pair), template, tokenizer)
    assert together == 2 and [talk.rewards for talk in talks] == [(1.0,), (0.0,)] * 2
    assert tokenizer.decode(talks[1].said[0]) == "No.<end>"
    judged = {"prompt": CHAT[:4], "answer": "Second.", "good": False}
    (talk,), together = read_lines(lines(tmp_path / "b.jsonl", judged), template, tokenizer)
    assert together == 0 and talk.rewards == (0.0, 0.0) and len(talk.said) == 2


WRONG = [
    ("{", "no JSON"),
    ("[1]", "no JSON object"),
    ({"text": "x"}, "it has text; wanted are"),
    ({"messages": []}, "is a list of messages"),
    ({"messages": [{"role": "bot", "content": "x"}]}, "message 1 of 'messages' has no role"),
    ({"messages": [{"role": "user", "content": 3}]}, "has no text as its content"),
    ({"messages": CHAT[:2]}, "says nothing"),
    ({"messages": CHAT[2:3]}, "speaks first"),
    ({"messages": CHAT, "rewards": [1]}, "1 rewards for 2 answers"),
    ({"messages": CHAT, "reward": "much"}, "rewards are numbers"),
    ({"prompt": "a", "chosen": "b"}, "'rejected' is missing"),
    ({"prompt": "a", "answer": "b", "good": 1}, "'good' is true or false"),
]


@pytest.mark.parametrize(("record", "told"), WRONG, ids=[told for _, told in WRONG])
def test_a_wrong_line_is_told_by_its_number(tmp_path, record, told):
    path = lines(tmp_path / "bad.jsonl", "", record)
    with pytest.raises(UserError, match=told) as error:
        read_lines(path, plain(characters()), characters())
    assert "bad.jsonl, line 2:" in str(error.value)


def test_kinds_are_not_mixed_and_files_are_not_empty(tmp_path):
    mixed = lines(tmp_path / "a.jsonl", {"messages": CHAT}, {"prompt": "a", "answer": "b", "good": True})
    with pytest.raises(UserError, match="line 2: it has prompt, answer, good; wanted are messages"):
        read_lines(mixed, plain(characters()), characters())
    with pytest.raises(UserError, match="no lines"):
        read_lines(lines(tmp_path / "b.jsonl", ""), plain(characters()), characters())
    with pytest.raises(UserError, match="cannot read"):
        read_lines(tmp_path / "none.jsonl", plain(characters()), characters())


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A small decoder that reads bytes, as a directory."""
    directory, tokenizer = tmp_path_factory.mktemp("checkpoint"), characters()
    shape = Shape(tokenizer.size, 32, 1, 1, 1, 32, 48)
    weights.save(jax.jit(lambda key: decoder(shape, key))(key_of(0)), directory)
    tokenizer.save(directory)
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<end>", "pad_token": "<pad>"}))
    return directory


def test_a_checkpoint_learns_from_a_file(tmp_path, checkpoint):
    """Pairs of equal prompts stay the pairs that they are, and the command learns them."""
    pairs = [{"prompt": "Hm?", "chosen": f"Yes {i}", "rejected": f"No {i}"} for i in range(4)]
    path = lines(tmp_path / "a.jsonl", *pairs)
    data = from_lines(path, str(checkpoint))
    source = source_for(Pairs(batch=64), data.steps, data.together)
    drawn, mask = eqx.filter_jit(lambda source, key: source.draw(key))(source, key_of(0))
    tokenizer = characters()
    said = [tokenizer.decode(ids) for ids in np.asarray(drawn.action)[0]]
    assert np.all(mask) and {(a[-6:-5], b[-6:-5]) for a, b in zip(said[::2], said[1::2], strict=True)} == {
        (str(i), str(i)) for i in range(4)
    }
    assert all(a.startswith("Yes") and b.startswith("No") for a, b in zip(said[::2], said[1::2], strict=True))
    settings = {"model": str(checkpoint), "learning_rate": 1e-3, "feed.batch": 4}
    run = thespis.train("dpo", data=str(path), steps=30, settings=settings, out=tmp_path / "run")
    losses = run.metrics()["policy_loss"]
    assert losses[-1] < 0.5 * losses[0] and run.spec.name == "a"
