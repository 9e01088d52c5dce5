"""JSONL chat files: tokens, responses and rewards, against the chat template; every wrong line is one error."""

from __future__ import annotations

import json

import equinox as eqx
import jax
import numpy as np
import pytest
from chat_templates import TEMPLATES

import thespis
from thespis.core.errors import UserError
from thespis.core.feeds import PreferencePairs
from thespis.data.samplers import make_sampler
from thespis.language import hf_weights
from thespis.language.chat import ChatTemplate, default_template
from thespis.language.chat_files import read_chats
from thespis.language.tokenizer import byte_tokenizer
from thespis.nets.decoder import DecoderConfig, init_decoder
from thespis.runtime.keys import seed_key
from thespis.training.data_sources import dataset_from_jsonl

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
def test_tokens_match_the_template_and_only_answers_are_responses(tmp_path, name):
    source, end = TEMPLATES[name]
    tokenizer = byte_tokenizer(special_tokens=[end])
    tokenizer.stop_tokens = (tokenizer.token_to_id("<end>"), tokenizer.token_to_id(end))
    template = ChatTemplate(source, {"bos_token": "", "eos_token": end})
    record = {"messages": CHAT, "reward": 2}
    (dialogue,), group_size = read_chats(lines(tmp_path / "a.jsonl", record), template, tokenizer)
    assert group_size == 0 and dialogue.rewards == (0.0, 2.0)
    text = template(CHAT, add_generation_prompt=False)
    assert text.startswith(tokenizer.decode(dialogue.tokens))
    assert not text[len(tokenizer.decode(dialogue.tokens)) :].strip()
    responses = [tokenizer.decode(tokens) for tokens in dialogue.responses]
    assert ["".join(text.split()) for text in responses] == [f"First.{end}", f"Second,then.{end}"]
    for start, tokens in zip(dialogue.response_starts, dialogue.responses, strict=True):
        assert dialogue.tokens[start : start + len(tokens)] == tokens
    assert dialogue.max_message_length == max(
        dialogue.response_starts[0],
        dialogue.response_starts[1] - dialogue.response_starts[0] - len(dialogue.responses[0]),
    )


def test_preference_pairs_and_labelled_answers(tmp_path):
    tokenizer = byte_tokenizer()
    template = default_template(tokenizer)
    pair = {"prompt": "Hm?", "chosen": "Yes.", "rejected": [{"role": "assistant", "content": "No."}]}
    dialogues, group_size = read_chats(lines(tmp_path / "a.jsonl", pair, pair), template, tokenizer)
    assert group_size == 2 and [dialogue.rewards for dialogue in dialogues] == [(1.0,), (0.0,)] * 2
    assert tokenizer.decode(dialogues[1].responses[0]) == "No.<end>"
    labelled = {"prompt": CHAT[:4], "answer": "Second.", "good": False}
    (dialogue,), group_size = read_chats(lines(tmp_path / "b.jsonl", labelled), template, tokenizer)
    assert group_size == 0 and dialogue.rewards == (0.0, 0.0) and len(dialogue.responses) == 2


WRONG = [
    ("{", "no JSON"),
    ("[1]", "no JSON object"),
    ({"text": "x"}, "it has text; wanted are"),
    ({"messages": []}, "is a list of messages"),
    ({"messages": [{"role": "bot", "content": "x"}]}, "message 1 of 'messages' has no role"),
    ({"messages": [{"role": "user", "content": 3}]}, "has no text as its content"),
    ({"messages": CHAT[:2]}, "no message of the assistant"),
    ({"messages": CHAT[2:3]}, "message 1 has the role assistant and is the first: there is no prompt"),
    ({"messages": [*CHAT[1:3], CHAT[2]]}, "message 3 has the role assistant after the role assistant"),
    ({"messages": [CHAT[1], CHAT[0], CHAT[2]]}, "message 2 has the role system after the role user"),
    ({"messages": [CHAT[1], {"role": "tool", "content": "x"}, CHAT[2]]}, "message 2 has the role tool after the role"),
    ({"prompt": CHAT[:3], "answer": "b", "good": True}, "message 4 has the role assistant after the role assistant"),
    ({"messages": CHAT, "rewards": [1]}, "1 rewards for 2 answers"),
    ({"messages": CHAT, "reward": "much"}, "rewards are numbers"),
    ({"prompt": "a", "chosen": "b"}, "'rejected' is missing"),
    ({"prompt": "a", "answer": "b", "good": 1}, "'good' is true or false"),
]


@pytest.mark.parametrize(("record", "message"), WRONG, ids=[message for _, message in WRONG])
def test_a_wrong_line_is_reported_with_its_number(tmp_path, record, message):
    path = lines(tmp_path / "bad.jsonl", "", record)
    with pytest.raises(UserError, match=message) as error:
        read_chats(path, default_template(byte_tokenizer()), byte_tokenizer())
    assert "bad.jsonl, line 2:" in str(error.value)


def test_mixed_kinds_and_empty_files_are_refused(tmp_path):
    mixed = lines(tmp_path / "a.jsonl", {"messages": CHAT}, {"prompt": "a", "answer": "b", "good": True})
    with pytest.raises(UserError, match="line 2: it has prompt, answer, good; wanted are messages"):
        read_chats(mixed, default_template(byte_tokenizer()), byte_tokenizer())
    with pytest.raises(UserError, match="no lines"):
        read_chats(lines(tmp_path / "b.jsonl", ""), default_template(byte_tokenizer()), byte_tokenizer())
    with pytest.raises(UserError, match="cannot read"):
        read_chats(tmp_path / "none.jsonl", default_template(byte_tokenizer()), byte_tokenizer())


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """Directory of a small byte-level decoder."""
    directory, tokenizer = tmp_path_factory.mktemp("checkpoint"), byte_tokenizer()
    config = DecoderConfig(tokenizer.vocab_size, 32, 1, 1, 1, 32, 48)
    hf_weights.save_pretrained(jax.jit(lambda key: init_decoder(config, key))(seed_key(0)), directory)
    tokenizer.save(directory)
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<end>", "pad_token": "<pad>"}))
    return directory


@pytest.mark.parametrize("arguments", [{"env": "text:echo"}, {"data": "chats.jsonl"}])
def test_the_name_of_a_model_on_a_hub_is_refused(tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    method = "sft" if "data" in arguments else "rloo"
    with pytest.raises(UserError, match="the directory org/name does not exist, and nothing is downloaded"):
        thespis.train(method, steps=4, settings={"model": "org/name"}, out=tmp_path / "run", **arguments)


def test_dpo_trains_a_checkpoint_from_a_file(tmp_path, checkpoint):
    """Pairs with equal prompts stay together, and DPO lowers its loss."""
    pairs = [{"prompt": "Hm?", "chosen": f"Yes {i}", "rejected": f"No {i}"} for i in range(4)]
    path = lines(tmp_path / "a.jsonl", *pairs)
    data = dataset_from_jsonl(path, str(checkpoint))
    sampler = make_sampler(PreferencePairs(batch_size=64), data.steps, data.group_size)
    steps, mask = eqx.filter_jit(lambda sampler, key: sampler.sample(key))(sampler, seed_key(0))
    tokenizer = byte_tokenizer()
    responses = [tokenizer.decode(tokens) for tokens in np.asarray(steps.action)[0]]
    assert np.all(mask) and {(a[-6:-5], b[-6:-5]) for a, b in zip(responses[::2], responses[1::2], strict=True)} == {
        (str(i), str(i)) for i in range(4)
    }
    assert all(a.startswith("Yes") and b.startswith("No") for a, b in zip(responses[::2], responses[1::2], strict=True))
    settings = {"model": str(checkpoint), "learning_rate": 1e-3, "feed.batch_size": 4}
    run = thespis.train("dpo", data=str(path), steps=30, settings=settings, out=tmp_path / "run")
    losses = run.metrics()["policy_loss"]
    assert losses[-1] < 0.5 * losses[0] and run.spec.name == "a"
