"""Names that other libraries give to settings (Stable-Baselines3, CleanRL, d3rlpy, RLlib, TRL), for hints in errors.

Nothing is renamed: a value of another library may have other units, so its name is only explained.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

_REPLAY = "it has no replay buffer"
_EPSILON = "it does not explore by epsilon-greedy actions"
_DECAY = "epsilon_decay_updates"

_TABLE: dict[str, tuple[str, str]] = {
    "gamma discount_factor": ("discount", ""),
    "lam lambda lmbda gae_lam": ("gae_lambda td_lambda", ""),
    "lr step_size": ("learning_rate critic_learning_rate", ""),
    "actor_lr policy_lr pi_lr actor_learning_rate": ("actor_learning_rate learning_rate", ""),
    "critic_lr q_lr qf_lr vf_lr critic_learning_rate": ("critic_learning_rate learning_rate", ""),
    "n_steps num_steps rollout_length rollout_fragment_length unroll_length": ("num_steps sequence_length", ""),
    "n_step": ("n_step sequence_length td_lambda", ""),
    "n_epochs update_epochs num_sgd_iter k_epochs epochs": ("num_epochs", "every batch is used once"),
    "batch_size sgd_minibatch_size num_minibatches": ("batch_size minibatch_size", "every batch is used whole"),
    "clip_range clip_coef clip_ratio clip_param cliprange eps_clip epsilon_clip": (
        "clip_range",
        "its loss has no clipped ratio",
    ),
    "vf_coef value_coef value_loss_coef vf_loss_coeff": ("vf_coef", ""),
    "ent_coef entropy_coef entropy_coeff entropy_cost alpha autotune": ("ent_coef temperature", ""),
    "target_entropy": ("target_entropy temperature", ""),
    "max_grad_norm grad_clip clip_grad_norm max_gradient_norm": ("max_grad_norm", ""),
    "buffer_size replay_size replay_buffer_size memory_size replay_buffer_class": ("buffer_size", _REPLAY),
    "learning_starts start_timesteps start_steps warmup_steps random_steps": ("learning_starts", _REPLAY),
    "train_freq train_frequency update_every": ("feed.update_interval", _REPLAY),
    "gradient_steps utd_ratio": ("feed.num_updates", ""),
    "target_update_interval target_network_frequency target_update_freq target_network_update_freq": (
        "target_update_interval tau",
        "it has no target network",
    ),
    "tau polyak soft_tau": ("tau target_update_interval", "it has no target network"),
    "policy_delay policy_frequency policy_freq": ("policy_delay", ""),
    "exploration_fraction eps_decay epsilon_decay epsilon_timesteps": (_DECAY, _EPSILON),
    "exploration_final_eps end_e eps_end epsilon_final final_eps": ("final_epsilon final_epsilons", _EPSILON),
    "exploration_initial_eps start_e eps_start": ("initial_epsilon", _EPSILON),
    "action_noise exploration_std": ("exploration_noise", ""),
    "policy_noise": ("target_policy_noise", ""),
    "noise_clip": ("target_noise_clip", ""),
    "net_arch policy_kwargs hidden_dim hidden_dims hidden_layers hidden_units fcnet_hiddens": ("hidden_sizes", ""),
    "activation_fn": ("activation", ""),
    "n_critics num_qs num_q_networks": ("num_critics", ""),
    "normalize_advantage norm_adv": ("advantage_normalizer", ""),
    "norm_obs normalize_observation normalize_observations": ("obs_normalizer", ""),
    "norm_reward normalize_reward normalize_rewards": ("reward_normalizer", ""),
    "optimizer_class optim": ("optimizer", ""),
    "num_generations": ("feed.group_size", ""),
    "kl_coef beta": ("kl_penalty loss_type.beta", ""),
    "n_envs num_envs num_envs_per_worker": ("num_envs --envs", ""),
    "total_timesteps timesteps total_steps num_timesteps num_iterations": ("--steps", ""),
    "seed random_seed": ("--seed", ""),
    "env_id env_name": ("--env", ""),
    "eval_freq": ("--evaluate-every", ""),
    "n_eval_episodes eval_episodes num_eval_episodes": ("--episodes", ""),
    "tensorboard_log": ("--tensorboard", ""),
    "callback": ("--callbacks", ""),
}
"""Names elsewhere; names here, of which the first that a method has is meant (with ``--``: an option of training); and
what is so if it has none of them."""


@functools.cache
def _by_name() -> dict[str, tuple[list[str], str]]:
    rows = ((theirs, ours.split(), reason) for theirs, (ours, reason) in _TABLE.items())
    return {name: (ours, reason) for theirs, ours, reason in rows for name in theirs.split()}


def translate(name: str, paths: Iterable[str]) -> str:
    """What a setting of another library is called here: one of ``paths``, or an option of training (``--steps``).

    Empty if nothing is known of the name, or if nothing among ``paths`` corresponds to it.
    """
    ours, _ = _by_name().get(_normalized(name), ([], ""))
    known = list(paths)
    for candidate in ours:
        if candidate.startswith("--"):
            return candidate
        if matches := [path for path in known if path == candidate or path.endswith(f".{candidate}")]:
            return min(matches, key=len)
    return ""


def option_in_python(option: str) -> str:
    """An option of training as an argument of :func:`thespis.train`: ``--steps`` is ``steps=``."""
    return "seeds=[N]" if option == "--seed" else f"{option[2:].replace('-', '_')}="


def reason_without(name: str) -> str:
    """Why a method may lack what the name means in other libraries; empty if nothing is known."""
    return _by_name().get(_normalized(name), ([], ""))[1]


def _normalized(name: str) -> str:
    return name.rpartition(".")[2].lower().replace("-", "_")
