"""JSONL chat files: tokens, responses and rewards, against the chat template; every wrong line is one error."""

from __future__ import annotations

import functools
import json

import equinox as eqx
import jax
import numpy as np
import pytest
from chat_templates import TEMPLATES

import thespis
from thespis.core.errors import UserError
from thespis.data.feeds import LoggedEpisodes, PreferencePairs
from thespis.language import hf_weights
from thespis.language.chat import ChatTemplate, default_template
from thespis.language.chat_files import read_chats
from thespis.language.tokenizer import byte_tokenizer
from thespis.methods.language.dpo import DPO
from thespis.methods.language.kto import KTO
from thespis.methods.language.sft import SFT
from thespis.methods.language.spin import SPIN
from thespis.nets.decoder import DecoderConfig, init_decoder
from thespis.runtime.keys import seed_key
from thespis.training.chat_datasets import chat_dataset
from thespis.training.data_sources import build_dataset

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
    file = read_chats(lines(tmp_path / "a.jsonl", record), template, tokenizer)
    (dialogue,) = file.chats
    assert file.group_size == 0 and dialogue.rewards == (0.0, 2.0)
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
    file = read_chats(lines(tmp_path / "a.jsonl", pair, pair), template, tokenizer)
    assert file.group_size == 2 and [dialogue.rewards for dialogue in file.chats] == [(1.0,), (0.0,)] * 2
    assert file.locations == ("line 1", "line 1", "line 2", "line 2")
    assert tokenizer.decode(file.chats[1].responses[0]) == "No.<end>"
    for labelled in (
        {"prompt": CHAT[:4], "answer": "Second.", "good": False},
        {"prompt": CHAT[:4], "completion": "Second.", "label": False},
    ):
        file = read_chats(lines(tmp_path / "b.jsonl", labelled), template, tokenizer)
        (dialogue,) = file.chats
        assert file.row_format == "label" and dialogue.rewards == (0.0, 0.0) and len(dialogue.responses) == 2


def test_formats_of_trl_are_the_same_chats(tmp_path):
    """Prompt and completion, text, and pairs with an implicit prompt, each against the chat that it stands for."""
    tokenizer = byte_tokenizer()
    template = default_template(tokenizer)

    def read(*records):
        return read_chats(lines(tmp_path / "a.jsonl", *records), template, tokenizer)

    chat = {"messages": CHAT[1:3]}
    for same in (
        {"prompt": "One?", "completion": "First."},
        {"prompt": CHAT[1:2], "completion": CHAT[2:3], "source": "x"},
        {"messages": [{**CHAT[1], "tool_calls": None}, {**CHAT[2], "content": [{"type": "text", "text": "First."}]}]},
    ):
        assert read(same).chats == read(chat).chats
    pair = {"prompt": CHAT[:2], "chosen": CHAT[2:3], "rejected": [{"role": "assistant", "content": "No."}]}
    whole = {"chosen": CHAT[:3], "rejected": [*CHAT[:2], *pair["rejected"]]}
    assert read(whole) == read(whole | {"prompt": "One?"}) == read(pair)
    text = read({"text": "Once upon"})
    assert text.chats[0].tokens == (*tokenizer.encode("Once upon"), tokenizer.stop_tokens[0])
    assert text.chats[0].response_starts == (1,) and text.chats[0].responses == (text.chats[0].tokens[1:],)
    begins = ChatTemplate(template.source, template.special_tokens | {"bos_token": "<unk>"})
    (chat,) = read_chats(tmp_path / "a.jsonl", begins, tokenizer).chats
    assert tokenizer.decode(chat.tokens[:1]) == "<unk>" and chat.responses == (text.chats[0].tokens,)


def test_saved_datasets_are_read(tmp_path):
    """A directory of Arrow files, as ``save_to_disk`` writes it: one table, or splits of which train is read."""
    pyarrow = pytest.importorskip("pyarrow")
    records = [{"messages": CHAT}, {"messages": CHAT[:3]}]
    expected = read_chats(lines(tmp_path / "a.jsonl", *records), default_template(byte_tokenizer()), byte_tokenizer())

    def save(directory, rows, **state):
        directory.mkdir(parents=True)
        files = [{"filename": f"data-{i:05}-of-{len(rows):05}.arrow"} for i in range(len(rows))]
        for file, row in zip(files, rows, strict=True):
            table = pyarrow.Table.from_pylist([row])
            with pyarrow.ipc.new_stream(str(directory / file["filename"]), table.schema) as writer:
                writer.write_table(table)
        (directory / "state.json").write_text(json.dumps({"_data_files": files} | state))

    def read(directory):
        return read_chats(directory, default_template(byte_tokenizer()), byte_tokenizer())

    save(tmp_path / "table", records)
    assert read(tmp_path / "table").chats == expected.chats and read(tmp_path / "table").locations[1] == "row 2"
    save(tmp_path / "splits" / "train", records)
    (tmp_path / "splits" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert read(tmp_path / "splits").chats == expected.chats
    (tmp_path / "splits" / "dataset_dict.json").write_text('{"splits": ["test"]}')
    with pytest.raises(UserError, match="has no split train: give the directory of one of test"):
        read(tmp_path / "splits")
    save(tmp_path / "wrong", [{"question": "a"}])
    with pytest.raises(UserError, match="wrong, row 1: it has question; wanted are"):
        read(tmp_path / "wrong")
    save(tmp_path / "selection", records, _indices_data_files=[{"filename": "indices.arrow"}])
    with pytest.raises(UserError, match="flatten_indices"):
        read(tmp_path / "selection")
    (tmp_path / "table" / "data-00000-of-00002.arrow").write_bytes(b"nonsense")
    with pytest.raises(UserError, match="cannot read"):
        read(tmp_path / "table")


WRONG = [
    ("{", "no JSON"),
    ("[1]", "no JSON object"),
    ({"texts": "x"}, "it has texts; wanted are"),
    ({"text": ""}, "'text' is a text that is not empty"),
    ({"conversations": []}, "rename conversations to messages"),
    ({"prompt": "a"}, "a prompt alone has nothing to learn"),
    ({"messages": CHAT, "tools": [{"name": "x"}]}, "'tools' is not read: write calls as text"),
    ({"messages": [CHAT[1], {**CHAT[2], "tool_calls": [{}]}]}, "'tool_calls' of message 2 of 'messages' is not read"),
    ({"chosen": CHAT[:3], "rejected": CHAT[:3]}, "must have the same first messages, the prompt, and then differ"),
    ({"chosen": "a b", "rejected": "a c"}, "'prompt' is missing: .* or both are lists of messages"),
    ({"prompt": "a", "completion": "b", "label": 1}, "'label' is true or false"),
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
    with pytest.raises(UserError, match=r"line 2: it has prompt, answer, good, another format than .*: messages"):
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


def test_sft_learns_what_was_preferred_alone(tmp_path, checkpoint):
    """Of pairs the chosen answers, of rated answers the good ones, and says so; kto and dpo get all of them."""
    pairs = [{"prompt": f"{i}?", "chosen": f"Yes {i}", "rejected": f"No {i}"} for i in range(3)]
    rated = [{"prompt": f"{i}?", "completion": f"{i}", "label": i > 0} for i in range(3)]
    model, tokenizer = str(checkpoint), byte_tokenizer()

    def responses(method, *records):
        data = build_dataset(str(lines(tmp_path / "a.jsonl", *records)), None, method)
        return [tokenizer.decode(tokens) for tokens in data.steps.action], data

    texts, data = responses(SFT(model=model), *pairs)
    assert texts == ["Yes 0<end>", "Yes 1<end>", "Yes 2<end>"] and data.group_size == 0
    assert data.notes == (
        "sft learns all responses it is given: of 3 preference pairs, it learns the chosen ones alone (dpo learns "
        "from pairs)",
    )
    assert responses(SPIN(model=model), *pairs)[0] == texts
    texts, data = responses(SFT(model=model), *rated)
    assert texts == ["1<end>", "2<end>"] and "the 2 good ones alone" in data.notes[0]
    for method, records in [(DPO, pairs), (KTO, pairs), (KTO, rated), (functools.partial(SFT, min_return=1.0), pairs)]:
        texts, data = responses(method(model=model), *records)
        assert len(texts) == 6 if records is pairs else 3 and not data.notes
    with pytest.raises(UserError, match="no response that was preferred or good, which sft could learn"):
        responses(SFT(model=model), rated[0])
    chats = [{"messages": CHAT, "reward": i} for i in range(2)]
    texts, data = responses(SFT(model=model), *chats)
    assert len(texts) == 4 and not data.notes


def test_an_outlier_of_length_is_named_and_cut(tmp_path, checkpoint):
    """The warning names its line; ``feed.max_tokens`` cuts it at the end of a response, or leaves it out."""
    short = [{"prompt": "a", "completion": "b" * (i % 3)} for i in range(20)]

    def read(*records, max_tokens=0):
        method = SFT(model=str(checkpoint), feed=LoggedEpisodes(max_tokens=max_tokens))
        return build_dataset(str(lines(tmp_path / "a.jsonl", *records)), None, method)

    plain = read(*short)
    width = plain.spec.observation_space.max_length
    assert plain.notes == () and width < 30
    outlier = {"prompt": "a", "completion": "c" * 400}
    (note,) = read(*short[:7], outlier, *short[7:]).notes
    assert f"a.jsonl, line 8: this chat has {400 + width - 2} tokens, and most have at most {width}" in note
    assert f"--set feed.max_tokens={width}" in note
    data = read(*short[:7], outlier, *short[7:], max_tokens=width)
    assert data.notes == (f"{tmp_path}/a.jsonl, with feed.max_tokens={width}: chats cut: 0, rows left out: 1 (line 8)",)
    jax.tree.map(np.testing.assert_array_equal, data.steps, plain.steps)
    long = {"messages": [*CHAT[1:3], CHAT[3], {"role": "assistant", "content": "c" * 400}]}
    chats = [{"messages": CHAT[1:3]}] * 3
    data = read(*chats, long, max_tokens=60)
    assert "chats cut: 1, rows left out: 0" in data.notes[0] and data.num_episodes == 4
    jax.tree.map(np.testing.assert_array_equal, data.steps, read(*chats, chats[0]).steps)
    assert read({"text": "x" * 100}, max_tokens=10).steps.action.shape == (1, 9)
    with pytest.raises(UserError, match="no chat of at most 10 tokens"):
        read(outlier, max_tokens=10)
    with pytest.raises(UserError, match=r"feed\.max_tokens cuts chats of a file"):
        build_dataset("demonstrations:3", "text:echo", SFT(feed=LoggedEpisodes(max_tokens=9)))
    pairs = [{"prompt": "a", "chosen": "b" * n, "rejected": "b"} for n in (2, 400, 3)]
    method = DPO(model=str(checkpoint), feed=PreferencePairs(max_tokens=40))
    data = build_dataset(str(lines(tmp_path / "b.jsonl", *pairs)), None, method)
    assert data.num_episodes == 4 and data.group_size == 2 and "rows left out: 1 (line 2)" in data.notes[0]


@pytest.mark.parametrize("arguments", [{"env": "text:echo"}, {"data": "chats.jsonl"}])
def test_the_name_of_a_model_on_a_hub_is_refused(tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    method = "sft" if "data" in arguments else "rloo"
    with pytest.raises(UserError, match="the directory org/name does not exist, and nothing is downloaded"):
        thespis.train(method, steps=4, settings={"model": "org/name"}, out=tmp_path / "run", **arguments)


@pytest.mark.long
def test_dpo_trains_a_checkpoint_from_a_file(tmp_path, checkpoint):
    """Pairs with equal prompts stay together, and DPO lowers its loss."""
    pairs = [{"prompt": "Hm?", "chosen": f"Yes {i}", "rejected": f"No {i}"} for i in range(4)]
    path = lines(tmp_path / "a.jsonl", *pairs)
    data = chat_dataset(path, str(checkpoint))
    sampler = PreferencePairs(batch_size=64).make_sampler(data.steps, data.group_size)
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
