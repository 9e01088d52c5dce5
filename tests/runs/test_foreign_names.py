"""Names of settings in other libraries: what they are called here, for each kind of method."""

import re

import pytest

import thespis
from thespis.core.errors import UserError
from thespis.methods.registry import load_method
from thespis.runs.config import apply_settings, setting_paths
from thespis.runs.foreign_names import translate

NAMES = {
    "ppo": "gamma=discount n_steps=feed.num_steps n_epochs=num_epochs batch_size=minibatch_size clip_coef=clip_range "
    "net_arch=hidden_sizes policy_kwargs=hidden_sizes n_envs=feed.num_envs lr=learning_rate total_timesteps=--steps",
    "dqn": "exploration_fraction=epsilon_decay_updates exploration_final_eps=final_epsilon "
    "n_steps=feed.sequence_length "
    "target_network_frequency=target_update_interval train_freq=feed.update_interval gradient_steps=feed.num_updates",
    "sac": "ent_coef=temperature polyak=tau target_update_interval=tau q_lr=critic_learning_rate n_critics=num_critics",
    "ddpg": "lr=critic_learning_rate actor_lr=actor_learning_rate action_noise=exploration_noise",
    "grpo": "num_generations=feed.group_size beta=kl_penalty",
}


@pytest.mark.parametrize("method", NAMES)
def test_the_error_names_the_setting_of_this_method(method):
    for pair in NAMES[method].split():
        theirs, ours = pair.split("=")
        with pytest.raises(UserError) as error:
            apply_settings(load_method(method)(), [f"{theirs}=1"])
        assert f"no setting '{theirs}': " in str(error.value) and "\n" not in str(error.value)
        assert f"did you mean {ours}?" in str(error.value) or f"option of training, {ours}" in str(error.value)


def test_the_error_says_why_a_method_lacks_a_setting():
    for theirs, words in (("learning_starts", "no replay buffer"), ("exploration_fraction", "epsilon-greedy")):
        with pytest.raises(UserError, match=words):
            apply_settings(thespis.PPO(), [f"{theirs}=1"])
    with pytest.raises(UserError, match="no clipped ratio"):
        apply_settings(thespis.DQN(), ["clip_range=0.1"])


def test_options_of_train_in_python():
    for theirs, ours in (
        ("total_timesteps", "mean steps=?"),
        ("gamma", "setting discount"),
        ("callback", "callbacks=?"),
        ("seed", "seeds=[N]?"),
    ):
        with pytest.raises(UserError, match=f"unknown option '{theirs}'.*{re.escape(ours)}"):
            thespis.train("ppo", env="CartPole-v1", steps=64, **{theirs: 1})


def test_unknown_names_have_no_translation():
    assert translate("verbose", setting_paths(thespis.PPO())) == ""
