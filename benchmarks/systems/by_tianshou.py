"""Tianshou, through its trainers, without logger, progress bar and test episodes."""

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


def networks(job, env, activation, *, soft):
    """An actor and a function that makes critics, of states, or of states and actions if ``soft``."""
    size, width = env.observation_space.shape, env.action_space.shape
    layers = {"state_shape": size, "hidden_sizes": [job.hidden, job.hidden], "activation": activation}
    actor = ContinuousActorProbabilistic(
        preprocess_net=Net(**layers), action_shape=width, unbounded=True, conditioned_sigma=soft
    )
    action_layers = {"action_shape": width, "concat": True} if soft else {}
    return actor, lambda: ContinuousCritic(preprocess_net=Net(**layers, **action_layers))


def sac(job, env):
    """SAC with a tuned temperature and one learning rate for all parts."""
    actor, critic = networks(job, env, torch.nn.ReLU, soft=True)
    adam = AdamOptimizerFactory(lr=job.learning_rate)
    return SAC(
        policy=SACPolicy(actor=actor, action_space=env.action_space),
        policy_optim=adam,
        critic=critic(),
        critic_optim=adam,
        critic2=critic(),
        critic2_optim=adam,
        alpha=AutoAlpha(-float(np.prod(env.action_space.shape)), 0.0, adam),
    )


def ppo(job, env):
    """PPO with the settings of the other systems: no return scaling, value clipping or entropy bonus."""
    actor, critic = networks(job, env, torch.nn.Tanh, soft=False)
    policy = ProbabilisticActorPolicy(
        actor=actor, dist_fn=lambda params: Independent(Normal(*params), 1), action_space=env.action_space
    )
    adam = AdamOptimizerFactory(lr=job.learning_rate)
    return PPO(policy=policy, critic=critic(), optim=adam, ent_coef=0.0, max_grad_norm=0.5)


def main() -> None:
    job = work()
    watch, total = Stopwatch(job.begin, job.steps), job.begin + job.steps
    envs = DummyVectorEnv([lambda: gymnasium.make(job.bare)] * job.envs)
    method = {"ppo": ppo, "sac": sac}[job.algorithm](job, gymnasium.make(job.bare))
    rollout = job.length * job.envs
    collector = Collector(method, envs, VectorReplayBuffer(rollout or 100_000, job.envs))
    collector.reset()
    num_warmup_steps = 0 if rollout else job.batch
    common = {
        "training_collector": collector,
        "max_epochs": 1,
        "epoch_num_steps": total - num_warmup_steps,
        "batch_size": job.batch,
        "training_fn": lambda epoch, step: watch.at(num_warmup_steps + step),
        "verbose": False,
        "show_progress": False,
    }
    if rollout:
        params = OnPolicyTrainerParams(
            collection_step_num_env_steps=rollout, update_step_num_repetitions=job.epochs, **common
        )
    else:
        collector.collect(n_step=num_warmup_steps, random=True)
        params = OffPolicyTrainerParams(
            collection_step_num_env_steps=job.envs,
            update_step_num_gradient_steps_per_sample=job.updates / job.envs,
            **common,
        )
    method.run_training(params)
    watch.at(total)
    watch.print_result()


main()
