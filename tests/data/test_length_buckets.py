"""Batches by length: one long dialogue does not pad the others, and every episode keeps its probability."""

import jax
import numpy as np
import pytest

from thespis.data.dialogues import dialogue_transitions
from thespis.data.feeds import LoggedEpisodes, PreferencePairs
from thespis.data.length_buckets import BucketSampler
from thespis.data.samplers import EpisodeSampler
from thespis.runtime.keys import seed_key


def dialogues(lengths, rewards=None):
    """One-turn dialogues: dialogue ``i`` has ``lengths[i]`` tokens ``i``, two of them the response."""
    rows, width = len(lengths), max(lengths)
    tokens = np.where(np.arange(width) < np.array(lengths)[:, None], np.arange(rows)[:, None], -1)
    responses = np.repeat(np.arange(rows)[:, None], 2, axis=1)[None]
    starts = np.array(lengths)[None] - 2
    rewards = np.zeros(rows) if rewards is None else np.array(rewards, "float64")
    return jax.tree.map(np.asarray, dialogue_transitions(tokens, starts, responses, rewards[None]))


def seen(steps, mask):
    """The dialogues of a batch."""
    return np.where(np.asarray(mask), np.asarray(steps.action)[..., 0], -1).ravel().tolist()


def test_one_long_dialogue_has_a_bucket_of_its_own():
    steps = dialogues([10, 30, 400, 20, 60, 70])
    sampler = LoggedEpisodes(batch_size=3).make_sampler(steps)
    assert isinstance(sampler, BucketSampler)
    np.testing.assert_allclose(np.exp(sampler.log_shares), [4 / 6, 1 / 6, 1 / 6], rtol=1e-6)
    batches = [part.sample(seed_key(0)) for part in sampler.samplers]
    assert [b[0].next_view.observation.shape for b in batches] == [(1, 3, 60), (1, 1, 70), (1, 1, 400)]
    assert sorted(i for s, m, _ in sampler.full_pass() for i in seen(s, m)) == [0, 1, 2, 3, 4, 5]
    draw = jax.jit(jax.vmap(sampler.draw_bucket))(np.arange(600))
    assert np.abs(np.bincount(draw) / 600 - [4 / 6, 1 / 6, 1 / 6]).max() < 0.06


def test_similar_or_short_dialogues_have_no_buckets():
    for lengths in ([200, 10, 20], [300, 290, 260], [300] * 3 + [100]):
        assert isinstance(LoggedEpisodes().make_sampler(dialogues(lengths)), EpisodeSampler)


def test_pairs_stay_together():
    steps = dialogues([10, 20, 20, 300, 12, 11, 9, 9], [1, 0, 0, 1, 1, 0, 0, 1])
    sampler = PreferencePairs(batch_size=4).make_sampler(steps, 2)
    assert isinstance(sampler, BucketSampler) and len(sampler.samplers) == 2
    short, long = (next(iter(part.full_pass())) for part in sampler.samplers)
    assert seen(*long[:2]) == [3, 2] and sorted(zip(seen(*short[:2])[::2], seen(*short[:2])[1::2], strict=True)) == [
        (0, 1),
        (4, 5),
        (7, 6),
    ]


@pytest.mark.slow
def test_sft_learns_short_and_long_chats(tmp_path):
    """All 21 chats are learned: the perplexity of each kind falls."""
    import json

    import thespis
    from thespis.language import hf_weights
    from thespis.language.tokenizer import byte_tokenizer
    from thespis.nets.decoder import DecoderConfig, init_decoder

    model, tokenizer = tmp_path / "model", byte_tokenizer()
    config = DecoderConfig(tokenizer.vocab_size, 16, 1, 1, 1, 16, 48)
    hf_weights.save_pretrained(jax.jit(lambda key: init_decoder(config, key))(seed_key(0)), model)
    tokenizer.save(model)
    (model / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<end>", "pad_token": "<pad>"}))
    short = [{"prompt": f"{i}?", "completion": "yes"} for i in range(20)]
    chats = [*short, {"prompt": "all?", "completion": "no " * 130}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in chats))
    for name, kind in (("short", chats[:20]), ("long", chats[20:])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in kind))
    settings = {"model": str(model), "learning_rate": 1e-2}
    data = str(tmp_path / "a.jsonl")
    run = thespis.train("sft", data=data, steps=150, seeds=2, settings=settings, out=tmp_path / "run")
    for name in ("short", "long"):
        assert max(run.evaluate_held_out(str(tmp_path / f"{name}.jsonl"))["perplexity"]) < 8
