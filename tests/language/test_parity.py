"""Parity with transformers and peft: logits, greedy generation and adapters of the same checkpoints, both ways."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checkpoints import CONFIGS, LONGEST, VOCABULARY, prompts, write
from reference_logits import REFERENCES, transformers_logits

from thespis.language.adapters import add_adapters, load_adapters, merge_adapters, save_adapters
from thespis.language.generation import ResponseGenerator, block_positions
from thespis.language.hf_weights import load_pretrained, save_pretrained
from thespis.language.sampling import TemperatureSampler
from thespis.runtime.keys import seed_key

pytestmark = [
    pytest.mark.parity,
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning"),  # peft asks transformers for it
]
NUM_TOKENS = 12


def logits(model, tokens):
    """Logits of all tokens ``[row, time, vocabulary]``, in one pass."""
    positions = jnp.arange(tokens.shape[1])
    return np.asarray(jax.vmap(lambda row: model.logits(model(row, positions)))(jnp.asarray(tokens)))


def hf_model(directory):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(directory, attn_implementation="eager").eval()


def hf_logits(model, tokens):
    import torch

    with torch.no_grad():
        return model(torch.tensor(np.asarray(tokens))).logits.float().numpy()


@pytest.mark.parametrize("name", CONFIGS)
def test_stored_references_match_transformers(name, tmp_path):
    computed = transformers_logits(write(tmp_path, name))
    np.testing.assert_allclose(computed, np.load(REFERENCES)[name], rtol=1e-5, atol=1e-5)  # torch differs by machine


@pytest.mark.parametrize("name", CONFIGS)
def test_logits(name, tmp_path):
    write(tmp_path, name)
    ours, theirs = logits(load_pretrained(tmp_path), prompts()), hf_logits(hf_model(tmp_path), prompts())
    assert np.abs(theirs).max() > 1
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize("name", CONFIGS)
def test_exported_checkpoint_generates_the_same_tokens(name, tmp_path):
    """Greedy generation by transformers from an exported checkpoint equals our greedy generation."""
    import torch

    model, tokens = load_pretrained(write(tmp_path / "theirs", name)), prompts()
    save_pretrained(model, tmp_path / "ours", max_length=LONGEST, max_shard_size=20_000)
    assert len(list((tmp_path / "ours").glob("*.safetensors"))) > 1
    prompt_tokens = torch.tensor(tokens)
    with torch.no_grad():
        expected = hf_model(tmp_path / "ours").generate(
            prompt_tokens,
            attention_mask=torch.ones_like(prompt_tokens),
            do_sample=False,
            max_new_tokens=NUM_TOKENS,
            eos_token_id=None,
            pad_token_id=0,
        )[:, tokens.shape[1] :]
    positions = block_positions(jnp.array([24, 24]), jnp.array([0, 0]), 24)
    cache = model.init_cache(2, 24 + NUM_TOKENS)
    generator = ResponseGenerator(model, TemperatureSampler(0.0), NUM_TOKENS)
    response, _ = generator(cache, jnp.asarray(tokens), positions, seed_key(0))
    np.testing.assert_array_equal(response.tokens, expected.numpy())


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3"])
def test_adapters_round_trip(name, tmp_path):
    import torch
    from peft import LoraConfig, PeftModel, get_peft_model

    write(tmp_path / "base", name)
    torch.manual_seed(0)
    targets = ["q_proj", "v_proj", "o_proj", "down_proj"]
    theirs = get_peft_model(hf_model(tmp_path / "base"), LoraConfig(r=3, lora_alpha=7, target_modules=targets))
    for part, value in theirs.named_parameters():
        if "lora_B" in part:
            torch.nn.init.normal_(value, std=0.3)
    theirs.save_pretrained(tmp_path / "theirs")
    tokens, expected = prompts(), hf_logits(theirs.eval(), prompts())
    model = load_adapters(load_pretrained(tmp_path / "base"), tmp_path / "theirs")
    assert np.abs(logits(load_pretrained(tmp_path / "base"), tokens) - expected).max() > 0.1
    np.testing.assert_allclose(logits(model, tokens), expected, atol=1e-4)
    np.testing.assert_allclose(logits(merge_adapters(model), tokens), expected, atol=1e-4)
    save_adapters(model, tmp_path / "ours", base_model=str(tmp_path / "base"))
    reloaded = PeftModel.from_pretrained(hf_model(tmp_path / "base"), tmp_path / "ours").eval()
    np.testing.assert_allclose(hf_logits(reloaded, tokens), expected, atol=1e-5)


def test_fresh_adapters_change_nothing(tmp_path):
    model = load_pretrained(write(tmp_path, "llama"))
    fresh = add_adapters(model, seed_key(0), rank=2, target_modules=("q", "down"))
    np.testing.assert_array_equal(logits(fresh, prompts()), logits(model, prompts()))


def test_bfloat16(tmp_path):
    """Both round in bfloat16, in different ways: the mean error is below a twentieth of the logits' deviation."""
    import torch

    model = load_pretrained(write(tmp_path, "qwen3"), dtype="bfloat16")
    theirs = hf_logits(hf_model(tmp_path).to(torch.bfloat16), prompts())
    assert model.embedding.dtype == jnp.bfloat16 and theirs.shape[-1] == VOCABULARY
    assert np.abs(logits(model, prompts()) - theirs).mean() < 0.05 * theirs.std()
