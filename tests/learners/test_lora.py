"""LoRA: updates of adapters only, against Adam on the same leaves; adapters are saved and merged in PEFT's format."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from synthetic_batches import quick_key

import thespis
from thespis.cli.main import run as command_line
from thespis.core.errors import UserError
from thespis.language.adapters import load_adapters
from thespis.language.hf_weights import load_pretrained
from thespis.learners.language.lm_agent import All, LoRA, add_value_head, init_opt_state, trainable_gradient_step
from thespis.learners.optim.optimizers import Adam, gradient_step
from thespis.nets.decoder import DecoderConfig, init_decoder
from thespis.serving.model_io import export_checkpoint

TOKENS, POSITIONS = jax.device_put((np.arange(10, dtype="int32")[None] % 9, np.arange(10, dtype="int32")[None]))
OPTIMIZER = Adam(0.01, 0.5)


def init_model(trainable):
    @jax.jit
    def init(model_key, adapter_key):
        return add_value_head(
            trainable.init_from(init_decoder(DecoderConfig(9, 32, 2, 1, 1, 32, 48), model_key), adapter_key), 32
        )

    return init(quick_key(0), quick_key(1))


def loss(model):
    features = model.model(TOKENS, POSITIONS)
    total = (
        jnp.square(model.value(features) - 1.0).mean() - jax.nn.log_softmax(model.model.logits(features))[..., 3].mean()
    )
    return total, total


@pytest.mark.slow
def test_training_all_parameters_matches_the_plain_step():
    model = init_model(All())
    result = trainable_gradient_step(OPTIMIZER, loss, model, init_opt_state(OPTIMIZER, model))
    expected = gradient_step(OPTIMIZER, loss, model, OPTIMIZER.init(model))
    for a, b in zip(jax.tree.leaves(result), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.long
def test_only_adapters_and_value_head_are_trained():
    """Two steps, against Adam on a dictionary of the trainable leaves."""
    model = init_model(LoRA(rank=3, alpha=6.0, target_modules=("q", "down")))
    paths_and_leaves, tree = jax.tree_util.tree_flatten_with_path(model)
    paths, leaves = [jax.tree_util.keystr(path) for path, _ in paths_and_leaves], [leaf for _, leaf in paths_and_leaves]
    trained = [i for i, path in enumerate(paths) if "adapter" in path or path in (".value_weight", ".value_bias")]
    assert len(trained) == 2 * 2 + 2

    def loss_of(params):
        return loss(jax.tree.unflatten(tree, [params.get(i, leaf) for i, leaf in enumerate(leaves)]))[0]

    adam = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(0.01))
    params = {i: leaves[i] for i in trained}
    state, opt = jax.jit(lambda params, model: (adam.init(params), init_opt_state(OPTIMIZER, model)))(params, model)
    assert sum(x.size for x in jax.tree.leaves(opt)) == 1 + 2 * sum(x.size for x in params.values())

    @jax.jit
    def both(params, state, model, opt):
        gradient = jax.grad(loss_of)(params)
        model, opt, _, norm = trainable_gradient_step(OPTIMIZER, loss, model, opt)
        updates, state = adam.update(gradient, state)
        return optax.apply_updates(params, updates), state, model, opt, norm, optax.tree.norm(gradient)

    for _ in range(2):
        params, state, model, opt, norm, expected_norm = both(params, state, model, opt)
        np.testing.assert_allclose(norm, expected_norm, rtol=1e-5)
    for i, leaf in enumerate(jax.tree.leaves(model)):
        if i in trained:
            np.testing.assert_allclose(leaf, params[i], atol=1e-6)
            assert (np.asarray(leaf) != np.asarray(leaves[i])).any()
        else:
            np.testing.assert_array_equal(leaf, leaves[i])


@pytest.mark.slow
def test_adapters_of_a_run_are_exported_merged_or_alone(tmp_path, capfd):
    """The base model with the exported adapters equals the exported merged model."""
    small = {"model": "blank", "num_layers": 1, "hidden_size": 32}
    first = thespis.train(
        "sft", "text:echo", data="demonstrations:32", steps=20, episodes=2, settings=small, out=tmp_path / "first"
    )
    command = (
        f"train grpo --env text:echo --model {first.path} --steps 192 --episodes 2 --out {tmp_path / 'run'} --set "
    )
    settings = [
        "trainable=LoRA",
        "trainable.rank=2",
        "trainable.target_modules=q,down",
        "learning_rate=0.03",
        "feed.num_envs=16",
    ]
    assert command_line([*command.split(), *settings]) == 0
    run = thespis.load(tmp_path / "run")
    assert run.method.trainable == LoRA(2, 16.0, ("q", "down"))
    for out, alone in (("whole", []), ("alone", ["--adapters"])):
        assert command_line(["export", str(run.path), "--out", str(tmp_path / out), *alone]) == 0
    assert "train grpo" in capfd.readouterr().out
    base, merged = load_pretrained(run.method.model), load_pretrained(tmp_path / "whole")
    trained = jax.tree.map(lambda x: x[0], run.states.model.model)
    adapted = load_adapters(base, tmp_path / "alone")
    logits = [model.logits(model(TOKENS, POSITIONS)) for model in (trained, merged, adapted, base)]
    np.testing.assert_allclose(logits[1], logits[0], atol=1e-5)
    np.testing.assert_allclose(logits[2], logits[0], atol=1e-5)
    assert np.abs(logits[3] - logits[0]).max() > 1e-3
    np.testing.assert_array_equal(base.embedding, first.states.model.embedding[0])
    with pytest.raises(UserError, match="has no adapters"):
        export_checkpoint(first, tmp_path / "none", adapters_only=True)


@pytest.mark.parametrize("wrong", [{"rank": 0}, {"target_modules": ()}, {"target_modules": ("q", "head")}])
def test_invalid_adapters_are_refused(wrong):
    with pytest.raises(ValueError, match="give a rank of at least 1 and some of q, k, v, o, gate, up, down"):
        dataclasses.replace(LoRA(), **wrong)
