"""What this package computes of a checkpoint is what transformers computes, and the other way round."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checkpoints import CONFIGS, LONGEST, VOCABULARY, prompts, write
from references import REFERENCES, answers

from thespis.core.keys import key_of
from thespis.language.adapters import load_adapters, merged, save_adapters, with_adapters
from thespis.language.generation import Speaker, place
from thespis.language.sampling import Sampling
from thespis.language.weights import load, save

pytestmark = [
    pytest.mark.parity,
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning"),  # peft asks transformers for it
]
SAID = 12


def logits(model, tokens):
    """Of every token ``[row, time, vocabulary]``, in one pass."""
    positions = jnp.arange(tokens.shape[1])
    return np.asarray(jax.vmap(lambda row: model.logits(model(row, positions)))(jnp.asarray(tokens)))


def peer(directory):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(directory, attn_implementation="eager").eval()


def their_logits(model, tokens):
    import torch

    with torch.no_grad():
        return model(torch.tensor(np.asarray(tokens))).logits.float().numpy()


@pytest.mark.parametrize("name", CONFIGS)
def test_stored_references_are_what_transformers_says(name, tmp_path):
    answered = answers(write(tmp_path, name))
    np.testing.assert_allclose(answered, np.load(REFERENCES)[name], rtol=1e-5, atol=1e-5)  # torch differs by machine


@pytest.mark.parametrize("name", CONFIGS)
def test_logits(name, tmp_path):
    write(tmp_path, name)
    ours, theirs = logits(load(tmp_path), prompts()), their_logits(peer(tmp_path), prompts())
    assert np.abs(theirs).max() > 1
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize("name", CONFIGS)
def test_an_export_says_the_same(name, tmp_path):
    """Greedy tokens of transformers from what was written here are the greedy tokens of this package."""
    import torch

    model, tokens = load(write(tmp_path / "theirs", name)), prompts()
    save(model, tmp_path / "ours", longest=LONGEST, shard=20_000)
    assert len(list((tmp_path / "ours").glob("*.safetensors"))) > 1
    asked = torch.tensor(tokens)
    with torch.no_grad():
        said = peer(tmp_path / "ours").generate(
            asked, attention_mask=torch.ones_like(asked), do_sample=False, max_new_tokens=SAID, eos_token_id=None,
            pad_token_id=0,
        )[:, tokens.shape[1] :]  # fmt: skip
    positions = place(jnp.array([24, 24]), jnp.array([0, 0]), 24)
    cache = model.empty(2, 24 + SAID)
    speak = Speaker(model, Sampling(0.0), SAID)
    drawn, _ = speak(cache, jnp.asarray(tokens), positions, key_of(0))
    np.testing.assert_array_equal(drawn.tokens, said.numpy())


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3"])
def test_adapters_round_trip(name, tmp_path):
    import torch
    from peft import LoraConfig, PeftModel, get_peft_model

    write(tmp_path / "base", name)
    torch.manual_seed(0)
    targets = ["q_proj", "v_proj", "o_proj", "down_proj"]
    theirs = get_peft_model(peer(tmp_path / "base"), LoraConfig(r=3, lora_alpha=7, target_modules=targets))
    for part, value in theirs.named_parameters():
        if "lora_B" in part:
            torch.nn.init.normal_(value, std=0.3)
    theirs.save_pretrained(tmp_path / "theirs")
    tokens, wanted = prompts(), their_logits(theirs.eval(), prompts())
    model = load_adapters(load(tmp_path / "base"), tmp_path / "theirs")
    assert np.abs(logits(load(tmp_path / "base"), tokens) - wanted).max() > 0.1
    np.testing.assert_allclose(logits(model, tokens), wanted, atol=1e-4)
    np.testing.assert_allclose(logits(merged(model), tokens), wanted, atol=1e-4)
    save_adapters(model, tmp_path / "ours", base=str(tmp_path / "base"))
    again = PeftModel.from_pretrained(peer(tmp_path / "base"), tmp_path / "ours").eval()
    np.testing.assert_allclose(their_logits(again, tokens), wanted, atol=1e-5)


def test_fresh_adapters_change_nothing(tmp_path):
    model = load(write(tmp_path, "llama"))
    fresh = with_adapters(model, key_of(0), rank=2, targets=("q", "down"))
    np.testing.assert_array_equal(logits(fresh, prompts()), logits(model, prompts()))


def test_bfloat16(tmp_path):
    """In bfloat16 both round, not alike: within a twentieth of the logits' spread."""
    import torch

    model = load(write(tmp_path, "qwen3"), dtype="bfloat16")
    theirs = their_logits(peer(tmp_path).to(torch.bfloat16), prompts())
    assert model.embedding.dtype == jnp.bfloat16 and theirs.shape[-1] == VOCABULARY
    assert np.abs(logits(model, prompts()) - theirs).mean() < 0.05 * theirs.std()
