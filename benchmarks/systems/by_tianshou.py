"""Tianshou, through its trainers, without logger, progress bar and episodes for testing."""

import gymnasium
import numpy as np
import torch
from shared import Stopwatch, work
from tianshou.algorithm import PPO, SAC
from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
from tianshou.algorithm.modelfree.sac import AutoAlpha, SACPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OffPolicyTrainerParams, OnPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic
from torch.distributions import Independent, Normal


def nets(job, world, activation, *, soft):
    """An actor and a function that makes critics: of states, or of states and actions if ``soft``."""
    size, width = world.observation_space.shape, world.action_space.shape
    layers = {"state_shape": size, "hidden_sizes": [job.hidden, job.hidden], "activation": activation}
    actor = ContinuousActorProbabilistic(
        preprocess_net=Net(**layers), action_shape=width, unbounded=True, conditioned_sigma=soft
    )
    more = {"action_shape": width, "concat": True} if soft else {}
    return actor, lambda: ContinuousCritic(preprocess_net=Net(**layers, **more))


def sac(job, world):
    """SAC whose temperature is tuned, all by one step size."""
    actor, critic = nets(job, world, torch.nn.ReLU, soft=True)
    adam = AdamOptimizerFactory(lr=job.learning_rate)
    return SAC(
        policy=SACPolicy(actor=actor, action_space=world.action_space), policy_optim=adam, critic=critic(),
        critic_optim=adam, critic2=critic(), critic2_optim=adam,
        alpha=AutoAlpha(-float(np.prod(world.action_space.shape)), 0.0, adam),
    )  # fmt: skip


def ppo(job, world):
    """PPO as the others have it: no scaling of returns, no clipping of values, no bonus for entropy."""
    actor, critic = nets(job, world, torch.nn.Tanh, soft=False)
    policy = ProbabilisticActorPolicy(
        actor=actor, dist_fn=lambda found: Independent(Normal(*found), 1), action_space=world.action_space
    )
    adam = AdamOptimizerFactory(lr=job.learning_rate)
    return PPO(policy=policy, critic=critic(), optim=adam, ent_coef=0.0, max_grad_norm=0.5)


def main() -> None:
    job = work()
    watch, total = Stopwatch(job.begin, job.steps), job.begin + job.steps
    worlds = DummyVectorEnv([lambda: gymnasium.make(job.bare)] * job.envs)
    method = {"ppo": ppo, "sac": sac}[job.algorithm](job, gymnasium.make(job.bare))
    rollout = job.length * job.envs
    collector = Collector(method, worlds, VectorReplayBuffer(rollout or 100_000, job.envs))
    collector.reset()
    warm = 0 if rollout else job.batch
    common = {
        "training_collector": collector, "max_epochs": 1, "epoch_num_steps": total - warm, "batch_size": job.batch,
        "training_fn": lambda epoch, step: watch.at(warm + step), "verbose": False, "show_progress": False,
    }  # fmt: skip
    if rollout:
        given = OnPolicyTrainerParams(
            collection_step_num_env_steps=rollout, update_step_num_repetitions=job.epochs, **common
        )
    else:
        collector.collect(n_step=warm, random=True)
        given = OffPolicyTrainerParams(
            collection_step_num_env_steps=job.envs,
            update_step_num_gradient_steps_per_sample=job.updates / job.envs, **common,
        )  # fmt: skip
    method.run_training(given)
    watch.at(total)
    watch.answer()


main()
