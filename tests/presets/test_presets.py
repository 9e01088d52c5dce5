"""Presets: files, the choice of one for a run, and what a run gets from it and from the user."""

from __future__ import annotations

import ale_py
import envpool
import gymnasium
import pytest

from thespis.api import build_config
from thespis.core.errors import UserError
from thespis.envs.compiled.gymnax import ENV_NAMES
from thespis.envs.registry import resolve_env
from thespis.learners.off_policy.actor_regularizers import BehaviorCloning
from thespis.learners.optim.optimizers import LinearSchedule
from thespis.methods.online.dqn import DQN
from thespis.methods.online.ppo import PPO
from thespis.presets.applied import DEFAULT_STEPS, PresetRun, count_updates, extension_warnings, with_preset
from thespis.presets.preset import all_presets, find_preset

FILE = """
method = "ppo"

[[preset]]
envs = ["Mine-v0"]
steps = 300
source = "a study"
[preset.settings]
discount = 0.5
feed.num_steps = 8
hidden_sizes = [4, 4]
"""


def apply(method="ppo", env="CartPole-v1", settings=(), preset="auto", steps=None, num_envs=None) -> PresetRun:
    return with_preset(preset, method, env, list(settings), steps=steps, num_envs=num_envs)


@pytest.mark.parametrize("preset", all_presets(), ids=lambda preset: preset.name)
def test_a_method_accepts_its_presets(preset):
    run = with_preset(preset.name, preset.method, None, [], steps=None, num_envs=None)
    assert run.method.name == preset.method and run.preset["name"] == preset.name
    assert run.steps == preset.steps and preset.source and preset.date


def test_presets_are_for_environments_that_exist_and_have_names_of_their_own():
    presets = all_presets()
    assert len({preset.name for preset in presets}) == len(presets)
    pairs = [(preset.method, env) for preset in presets if preset.is_default for env in preset.envs]
    assert len(set(pairs)) == len(pairs), "an environment has two presets that are used by default"
    gymnasium.register_envs(ale_py)
    known = {*ENV_NAMES, *gymnasium.registry, *envpool.list_all_envs()}
    others = {env for preset in presets for env in preset.envs} - known
    packages = {env for env in others if env.startswith("gymnasium_robotics:")}  # an extra that tests do not install
    assert all(resolve_env(env).kind == "compiled" for env in others - packages)


def test_environments_of_this_package_are_known_by_their_whole_name():
    maze = "thespis.papers.rtrl_actor_critic.envs:TMaze?corridor_length=6"
    assert apply("r2d2", maze).preset["name"] == "r2d2/thespis.papers.rtrl_actor_critic.envs:TMaze"
    assert apply("ppo", "thespis:maze").preset is None, "it is asked for by its name"
    levels = apply("ppo", "thespis:maze", preset="ppo/levels").method
    assert levels.share_body and levels.memory.hidden_size == 256
    assert apply("td3", "Hopper-v5").preset["name"] == "td3/Hopper-v5"
    cloning = apply("td3", "Hopper-v5", preset="td3/demonstrations").method
    assert cloning.actor_regularizer == BehaviorCloning(0.1) and cloning.layer_norm
    points = find_preset("auto", "sac", "gymnasium:gymnasium_robotics:PointMaze_UMaze-v3")
    assert points.settings["feed.relabel"] == "HindsightFuture"


def test_a_run_gets_the_preset_of_its_method_and_environment():
    run = apply()
    assert isinstance(run.method, PPO)
    assert (run.steps, run.num_envs) == (100_000, 8)
    assert (run.method.discount, run.method.feed.num_steps, run.method.minibatch_size) == (0.98, 32, 256)
    # 390 rollouts of 8 x 32 steps, each with 20 epochs of one minibatch
    assert isinstance(run.method.learning_rate, LinearSchedule)
    assert (run.method.learning_rate.init_value, run.method.learning_rate.transition_steps) == (1e-3, 390 * 20)


def test_shares_of_all_updates_are_counted_from_the_first_update():
    run = apply("dqn", steps=50_000)
    assert isinstance(run.method, DQN)
    updates = (50_000 - 1_000) // 256 * 128
    assert count_updates(run.method, 50_000, 1) == (updates, updates)
    assert run.method.epsilon_decay_updates == round(0.16 * updates)


def test_the_user_s_values_win_and_falling_values_follow_them():
    run = apply(settings=["num_epochs=5", "discount=0.9"], steps=10_240, num_envs=4)
    assert isinstance(run.method, PPO) and isinstance(run.method.learning_rate, LinearSchedule)
    assert (run.steps, run.num_envs, run.method.discount) == (10_240, 4, 0.9)
    assert run.method.learning_rate.transition_steps == 10_240 // (4 * 32) * 5
    assert apply(settings=["learning_rate=0.5"]).method.learning_rate == 0.5
    assert apply(settings=["learning_rate.init_value=0.5"]).method.learning_rate.init_value == 0.5


@pytest.mark.parametrize("env", ["gymnasium:CartPole-v1", "gymnax:CartPole-v1"])
def test_a_library_s_name_does_not_matter(env):
    assert apply(env=env).preset["name"] == "ppo/CartPole-v1"


@pytest.mark.parametrize("preset", ["none", None])
def test_a_run_without_preset_has_the_method_s_own_values(preset):
    run = apply(preset=preset)
    assert run == PresetRun(PPO(), DEFAULT_STEPS, None, None)


def test_other_environments_and_configured_methods_have_no_preset():
    assert apply(env="probe:constant").preset is None and apply(env=None).preset is None
    assert apply("impala").preset is None and apply(env=object).preset is None
    assert apply(PPO(discount=0.3)) == PresetRun(PPO(discount=0.3), DEFAULT_STEPS, None, None)
    with pytest.raises(UserError, match="needs the method's name"):
        apply(PPO(), preset="ppo/CartPole-v1")


def test_a_preset_of_another_environment_can_be_named():
    assert apply(env="probe:constant", preset="ppo/Acrobot-v1").method.gae_lambda == 0.94
    assert apply(env="envpool:Ant-v5").preset["name"] == "ppo/Ant-v5"
    assert apply(env="envpool:Ant-v5", preset="ppo/cleanrl-mujoco").method.vf_coef == 0.25


def test_a_file_of_the_user_is_a_preset(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(FILE)
    run = apply(env="probe:constant", preset=str(path))  # the only one in the file
    assert (run.steps, run.method.feed.num_steps, run.method.hidden_sizes) == (300, 8, (4, 4))
    assert run.preset["source"] == "a study"
    path = tmp_path / "two.toml"
    path.write_text(FILE + FILE.partition('"ppo"')[2].replace("Mine-v0", "CartPole-v1").replace("0.5", "0.25"))
    assert apply(preset=path).method.discount == 0.25
    with pytest.raises(UserError, match="has presets for Mine-v0, CartPole-v1 and none for Acrobot-v1"):
        apply(env="Acrobot-v1", preset=path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("method =", "cannot be read"),
        ('method = "ppo"', "at least one"),
        ('method = "ppo"\n[[preset]]\nsteps = 5', "needs envs"),
        ('method = "ppo"\n[[preset]]\nenvs = ["A-v0"]\nlearning_rate = 5', "unknown entry 'learning_rate'"),
        ('method = "ppo"\n[[preset]]\nenvs = ["A-v0"]\nsteps = "many"', "steps = 'many' is no int"),
        ('method = "ppo"\n[[preset]]\nenvs = ["A-v0"]\n[preset.settings]\nrate = 5', "no setting 'rate'"),
        ('method = "sac"\n[[preset]]\nenvs = ["A-v0"]', "is for sac, not for ppo"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(tmp_path, text, message):
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=message) as error:
        apply(preset=str(path))
    assert "\n" not in str(error.value)


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(UserError, match="did you mean ppo/CartPole-v1"):
        find_preset("ppo/CartPole", "ppo", "CartPole-v1")


def test_run_json_says_which_preset_was_used_and_what_the_user_changed():
    config = build_config("ppo", "CartPole-v1", steps=None, seeds=1, settings=["discount=0.9"])
    assert (config["steps"], config["envs"], config["method"]["discount"]) == (100_000, 8, 0.9)
    record = config["preset"]
    assert record["name"] == "ppo/CartPole-v1" and record["changed"] == ["discount=0.9"]
    assert "gae_lambda=0.8" in record["settings"] and "RL Zoo" in record["source"]
    assert "preset" not in build_config("ppo", "CartPole-v1", steps=None, seeds=1, preset=None)
    assert "preset" not in build_config("td3", "Pendulum-v1", steps=9, seeds=1, data="somewhere")


def test_continuing_beyond_the_end_of_a_schedule_warns():
    config = build_config("ppo", "CartPole-v1", steps=1_024, seeds=1)
    assert extension_warnings(config, 1_024) == ()
    (warning,) = extension_warnings(config, 2_048)
    assert "learning_rate fall to 0 until step 1,024" in warning and "--steps 2048" in warning
    assert extension_warnings(build_config("dqn", "CartPole-v1", steps=512, seeds=1), 2_048) == ()
