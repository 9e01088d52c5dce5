"""Stable-Baselines3 on images: ``CnnPolicy`` on Atari, and on MinAtar with the same small network as ours."""

import ale_py
import gymnasium
import minatar
import numpy as np
import torch
from by_sb3 import StopwatchCallback
from shared import DQN_BUFFER_SIZE, DQN_INTERVAL, MINATAR_FILTERS, TARGET_EVERY, Stopwatch, work
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, NatureCNN
from stable_baselines3.common.vec_env import VecFrameStack


class MinAtarGame(gymnasium.Env):
    """A MinAtar game as gymnax has it: all six actions, no sticky actions, 1,000 steps."""

    def __init__(self, name: str):
        self.game = minatar.Environment(name.removesuffix("-MinAtar").lower(), sticky_action_prob=0.0)
        height, width, channels = self.game.state_shape()
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (channels, height, width), np.float32)
        self.action_space = gymnasium.spaces.Discrete(self.game.num_actions())

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.game.seed(seed)
        self.game.reset()
        self.steps = 0
        return self._observe(), {}

    def step(self, action):
        reward, over = self.game.act(int(action))
        self.steps += 1
        return self._observe(), float(reward), bool(over), self.steps >= 1_000, {}

    def _observe(self):
        return np.moveaxis(self.game.state(), -1, 0).astype(np.float32)


class MinAtarCNN(BaseFeaturesExtractor):
    """One layer of 3 x 3 windows."""

    def __init__(self, observation_space):
        channels, height, width = observation_space.shape
        super().__init__(observation_space, MINATAR_FILTERS * (height - 2) * (width - 2))
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(channels, MINATAR_FILTERS, 3), torch.nn.ReLU(), torch.nn.Flatten()
        )

    def forward(self, observations):
        return self.layers(observations)


def main() -> None:
    job = work()
    watch = Stopwatch(job.begin, job.steps)
    is_atari = job.env.startswith("ALE/")
    gymnasium.register_envs(ale_py)
    if is_atari:
        options = {"repeat_action_probability": 0.0, "frameskip": 1}
        env = VecFrameStack(make_atari_env(job.env, n_envs=job.envs, seed=0, env_kwargs=options), n_stack=4)
        network = {"features_extractor_class": NatureCNN, "net_arch": []}
    else:
        env = make_vec_env(lambda: MinAtarGame(job.env), n_envs=job.envs, seed=0)
        network = {
            "features_extractor_class": MinAtarCNN,
            "normalize_images": False,
            "net_arch": [job.hidden],
            "activation_fn": torch.nn.ReLU,
        }
    common = {"learning_rate": job.learning_rate, "batch_size": job.batch, "device": "cpu", "seed": 0}
    if job.algorithm == "ppo":
        model = PPO("CnnPolicy", env, n_steps=job.length, n_epochs=job.epochs, policy_kwargs=network, **common)
    else:
        model = DQN(
            "CnnPolicy",
            env,
            learning_starts=job.batch,
            buffer_size=DQN_BUFFER_SIZE,
            train_freq=DQN_INTERVAL,
            gradient_steps=1,
            target_update_interval=TARGET_EVERY * DQN_INTERVAL,
            policy_kwargs=network,
            **common,
        )
    model.learn(10 * (job.begin + job.steps), callback=StopwatchCallback(watch, job.algorithm == "ppo"))
    watch.print_result()


main()
