"""Merging models: sums of parameters, refusals, runs as sources, and a merged model as reference."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest

import thespis
from thespis.cli.main import run as command_line
from thespis.core.errors import UserError
from thespis.data.feeds import Episodes
from thespis.language import hf_weights
from thespis.methods.language.grpo import GRPO
from thespis.nets.decoder import DecoderConfig, init_decoder
from thespis.serving.model_io import engine_from_path, find_model, merge_checkpoints

CONFIG = DecoderConfig(
    vocab_size=11, hidden_size=8, num_layers=2, num_heads=2, num_kv_heads=1, head_dim=4, intermediate_size=12
)


def checkpoint(path, seed, config=CONFIG):
    model = init_decoder(config, jax.random.key(seed))
    hf_weights.save_pretrained(model, path, max_length=77)
    (path / "tokenizer.json").write_text(json.dumps({"seed": seed}))
    return model


def test_parameters_are_summed(tmp_path):
    models = [checkpoint(tmp_path / str(i), i) for i in range(3)]
    sources = [tmp_path / str(i) for i in range(3)]
    merge_checkpoints(sources, [1.0, 0.5, -0.5], tmp_path / "merged")
    merged = hf_weights.load_pretrained(tmp_path / "merged")
    for leaf, *parts in zip(*map(jax.tree.leaves, (merged, *models)), strict=True):
        np.testing.assert_allclose(leaf, parts[0] + 0.5 * parts[1] - 0.5 * parts[2], atol=1e-6)
    assert json.loads((tmp_path / "merged/tokenizer.json").read_text()) == {"seed": 0}
    assert json.loads((tmp_path / "merged/config.json").read_text())["max_position_embeddings"] == 77
    assert list(json.loads((tmp_path / "merged/merged.json").read_text()).values()) == [1.0, 0.5, -0.5]


def test_refusals(tmp_path, capfd):
    checkpoint(tmp_path / "a", 0)
    checkpoint(tmp_path / "b", 1, DecoderConfig(**{**vars(CONFIG), "num_layers": 1}))
    with pytest.raises(UserError, match="not of the same architecture"):
        merge_checkpoints([tmp_path / "a", tmp_path / "b"], [0.5, 0.5], tmp_path / "out")
    with pytest.raises(UserError, match="1 weights for 2 models"):
        merge_checkpoints([tmp_path / "a", tmp_path / "a"], [1.0], tmp_path / "out")
    with pytest.raises(UserError, match="is not empty"):
        merge_checkpoints([tmp_path / "a", tmp_path / "a"], [0.5, 0.5], tmp_path / "b")
    assert command_line(["merge", str(tmp_path / "a"), str(tmp_path / "none"), "--out", str(tmp_path / "out")]) == 2
    assert "none" in capfd.readouterr().err
    assert command_line(["merge", str(tmp_path / "a"), "--out", str(tmp_path / "out")]) == 2
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_two_runs_merge_and_the_result_is_a_reference(tmp_path, capfd):
    """The run's reference is the merged model, its policy begins as the first run."""
    settings = {"num_layers": 1, "hidden_size": 32, "learning_rate": 0.03, "feed": Episodes(3, 8, num_envs=16)}
    runs = [
        thespis.train(
            GRPO(model="blank", **settings), "text:maze", steps=96, episodes=2, seeds=[i], out=tmp_path / f"r{i}"
        )
        for i in range(2)
    ]
    paths = [str(run.path) for run in runs]
    assert command_line(["merge", *paths, "--out", str(tmp_path / "merged"), "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["weights"] == [0.5, 0.5]
    assert engine_from_path(find_model(tmp_path / "merged")).model.config.num_layers == 1
    method = GRPO(model=paths[0], reference_model=str(tmp_path / "merged"), **{**settings, "learning_rate": 0.0})
    trained = thespis.train(method, "text:maze", steps=48, episodes=2, out=tmp_path / "salsa")
    first, second, policy, reference = (
        jax.tree.leaves(model)
        for model in (
            runs[0].states.model.model,
            runs[1].states.model.model,
            trained.states.model.model,
            trained.states.reference,
        )
    )
    for a, b, own, ref in zip(first, second, policy, reference, strict=True):
        np.testing.assert_array_equal(own, a)
        np.testing.assert_allclose(ref, (a + b) / 2, atol=1e-6)
    with pytest.raises(UserError, match="reference_model=tiny"):
        GRPO(model="blank", reference_model="tiny", **settings).init(runs[0].spec, jax.random.key(0))
