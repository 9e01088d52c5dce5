"""One run of GAIL or AIRL by the library ``imitation``: prints seconds of training and the mean greedy return."""

from __future__ import annotations

import json
import sys
import time

import gymnasium as gym
import numpy as np
import torch
from imitation.algorithms.adversarial.airl import AIRL
from imitation.algorithms.adversarial.gail import GAIL
from imitation.data.types import Transitions
from imitation.rewards.reward_nets import BasicRewardNet, BasicShapedRewardNet
from imitation.util.networks import RunningNorm
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv


def main() -> None:
    work = json.loads(sys.argv[1])
    torch.set_num_threads(work["threads"])
    columns = np.load(work["data"])
    n = len(columns["reward"])
    demonstrations = Transitions(
        obs=columns["observation"],
        acts=columns["action"],
        next_obs=columns["next_observation"],
        dones=columns["terminated"],
        infos=np.array([{}] * n),
    )
    seed, ppo = work["seed"], work["ppo"]
    envs = DummyVecEnv([lambda: gym.make(work["env"]) for _ in range(work["num_envs"])])
    envs.seed(seed)
    learner = PPO("MlpPolicy", envs, seed=seed, device="cpu", **ppo)
    network = {"gail": BasicRewardNet, "airl": BasicShapedRewardNet}[work["algorithm"]](
        envs.observation_space, envs.action_space, normalize_input_layer=RunningNorm
    )
    trainer = {"gail": GAIL, "airl": AIRL}[work["algorithm"]](
        demonstrations=demonstrations,
        demo_batch_size=work["batch_size"],
        gen_replay_buffer_capacity=ppo["n_steps"] * work["num_envs"],
        n_disc_updates_per_round=work["num_updates"],
        disc_opt_kwargs={"lr": work["learning_rate"]},
        venv=envs,
        gen_algo=learner,
        reward_net=network,
        allow_variable_horizon=True,
        log_dir=work["log_dir"],
    )
    began = time.perf_counter()
    trainer.train(work["steps"])
    seconds = time.perf_counter() - began
    play = DummyVecEnv([lambda: gym.make(work["env"]) for _ in range(8)])
    play.seed(10_000 + seed)
    mean, _ = evaluate_policy(learner, play, 20, deterministic=True, warn=False)
    print(json.dumps({"seconds": seconds, "return": float(mean)}))


if __name__ == "__main__":
    main()
