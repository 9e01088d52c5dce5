"""Preference losses and their gradients, against TRL's on the same log-probabilities."""

from __future__ import annotations

import collections
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.learners.language import preference_losses as losses

pytestmark = pytest.mark.parity
PAIRS, TOKENS = 6, 9
BETA, SMOOTHING = 0.3, 0.2
RNG = np.random.default_rng(0)
LENGTHS = RNG.integers(2, TOKENS, (2, PAIRS))
MASK = (np.arange(TOKENS) < LENGTHS[..., None]).astype("float32")
LOG_PROBS = -RNG.exponential(1.0, (2, PAIRS, TOKENS)).astype("float32") * MASK
REFERENCE = -RNG.exponential(1.0, (2, PAIRS, TOKENS)).astype("float32") * MASK

CASES = {
    "sigmoid": (losses.SigmoidLoss(BETA), {}),
    "hinge": (losses.HingeLoss(BETA), {}),
    "ipo": (losses.IPOLoss(BETA, per_token=True), {}),
    "robust": (losses.RobustLoss(BETA, SMOOTHING), {}),
    "exo_pair": (losses.EXOLoss(BETA, SMOOTHING), {}),
    "sppo_hard": (losses.SPPOLoss(BETA), {}),
    "forward KL": (losses.SigmoidLoss(BETA, link=losses.ForwardKLLink()), {"f_divergence_type": "forward_kl"}),
    "JS": (losses.SigmoidLoss(BETA, link=losses.JensenShannonLink()), {"f_divergence_type": "js_divergence"}),
    "alpha": (
        losses.SigmoidLoss(BETA, link=losses.AlphaLink(0.4)),
        {"f_divergence_type": "alpha_divergence", "f_alpha_divergence_coef": 0.6},
    ),
}


def ours(loss_type):
    """The mean loss and its gradient by all log-probabilities."""

    def loss(log_probs):
        sides = [
            losses.ResponseScores(log_prob.sum(axis=1), reference.sum(axis=1), lengths, jnp.zeros(PAIRS))
            for log_prob, reference, lengths in zip(
                log_probs, jnp.asarray(REFERENCE), jnp.asarray(LENGTHS), strict=True
            )
        ]
        return loss_type(*sides).mean()

    return jax.value_and_grad(loss)(jnp.asarray(LOG_PROBS))


def check(loss_type, value, gradient):
    expected, expected_gradient = ours(loss_type)
    assert float(expected) == pytest.approx(value, abs=1e-5)
    np.testing.assert_allclose(expected_gradient * MASK, gradient * MASK, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_losses_of_the_dpo_trainer(name):
    """Its loss, run on a trainer that holds nothing but settings, with a model that returns these log-probabilities."""
    import torch
    from trl import DPOTrainer

    loss_type, changes = CASES[name]
    kind = name if name in ("sigmoid", "hinge", "ipo", "robust", "exo_pair", "sppo_hard") else "sigmoid"
    log_probs = torch.tensor(LOG_PROBS.reshape(-1, TOKENS), requires_grad=True)
    settings = {
        "model": SimpleNamespace(training=True),
        "accelerator": SimpleNamespace(device="cpu", gather=lambda x: x, gather_for_metrics=lambda x: x),
        "aux_loss_enabled": False,
        "ld_alpha": None,
        "precompute_ref_logps": True,
        "f_divergence_type": "reverse_kl",
        "f_alpha_divergence_coef": 0.5,
        "loss_types": [kind],
        "loss_weights": [1.0],
        "beta": BETA,
        "label_smoothing": SMOOTHING if kind in ("robust", "exo_pair") else 0.0,
        "use_weighting": False,
        "_total_train_tokens": 0,
        "_tp_size": 1,
        "state": SimpleNamespace(num_input_tokens_seen=0),
        "_metrics": collections.defaultdict(lambda: collections.defaultdict(list)),
    }
    # A prompt of one token precedes the responses. For means per token it would count the mask of all positions.
    mask = torch.tensor(np.concatenate([np.zeros((2 * PAIRS, 1)), MASK.reshape(-1, TOKENS)], axis=1), dtype=torch.long)
    outputs = SimpleNamespace(
        log_probs=log_probs,
        entropy=torch.zeros_like(log_probs),
        is_top1=torch.zeros_like(log_probs, dtype=torch.bool),
        mean_logits=torch.zeros_like(log_probs),
    )
    reference = torch.tensor(REFERENCE.sum(axis=2))
    inputs = {
        "input_ids": torch.zeros_like(mask),
        "attention_mask": torch.ones_like(mask),
        "completion_mask": mask,
        "ref_chosen_logps": reference[0],
        "ref_rejected_logps": reference[1],
    }
    value = DPOTrainer._compute_loss(
        SimpleNamespace(**settings | changes), lambda **options: outputs, inputs, return_outputs=False
    )
    value.backward()
    check(loss_type, value.item(), log_probs.grad.numpy().reshape(2, PAIRS, TOKENS))


def test_simpo_of_the_cpo_trainer():
    import torch
    from trl.experimental.cpo import CPOTrainer

    log_probs = torch.tensor(LOG_PROBS, requires_grad=True)
    trainer = SimpleNamespace(
        alpha=0.0,
        loss_type="simpo",
        simpo_gamma=0.6,
        beta=BETA,
        label_smoothing=0.0,
        accelerator=SimpleNamespace(device="cpu"),
    )
    chosen, rejected = log_probs.sum(dim=2) / torch.tensor(LENGTHS)
    value = CPOTrainer.cpo_loss(trainer, chosen, rejected)[0].mean()
    value.backward()
    check(losses.SimPOLoss(BETA, 0.6 / BETA), value.item(), log_probs.grad.numpy())


def test_orpo_of_its_trainer():
    """TRL's odds ratio is to be maximized; the likelihood is taken per response here, there over all tokens."""
    import torch
    from trl.experimental.orpo import ORPOTrainer

    log_probs = torch.tensor(LOG_PROBS, requires_grad=True)
    chosen, rejected = log_probs.sum(dim=2) / torch.tensor(LENGTHS)
    trainer = SimpleNamespace(beta=BETA, accelerator=SimpleNamespace(device="cpu"))
    value = -ORPOTrainer.odds_ratio_loss(trainer, chosen, rejected)[0].mean() - chosen.mean()
    value.backward()
    check(losses.ORPOLoss(BETA), value.item(), log_probs.grad.numpy())
