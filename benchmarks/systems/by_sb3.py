"""Stable-Baselines3, and SBX, which has the same interface."""

from shared import Stopwatch, work
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env


class StopwatchCallback(BaseCallback):
    """Passes the number of steps to the stopwatch: after every update off policy, after every rollout on policy."""

    def __init__(self, watch: Stopwatch, rollouts: bool):
        super().__init__()
        self.watch, self.rollouts, self.done = watch, rollouts, False

    def _on_rollout_start(self) -> None:
        self.done = self.watch.at(self.num_timesteps)

    def _on_step(self) -> bool:
        return not self.done


def main(library) -> None:
    job = work()
    watch = Stopwatch(job.begin, job.steps)
    on_policy = job.length > 0
    env = make_vec_env(job.bare, n_envs=job.envs, seed=0)
    common = {"learning_rate": job.learning_rate, "batch_size": job.batch, "device": "cpu", "seed": 0}
    if on_policy:
        network = {"net_arch": [job.hidden, job.hidden]}
        model = library.PPO("MlpPolicy", env, n_steps=job.length, n_epochs=job.epochs, policy_kwargs=network, **common)
    else:
        network = {"net_arch": [job.hidden, job.hidden]}
        algorithm = {"sac": library.SAC, "td3": library.TD3}[job.algorithm]
        model = algorithm(
            "MlpPolicy",
            env,
            learning_starts=job.batch,
            buffer_size=100_000,
            train_freq=1,
            gradient_steps=job.updates,
            policy_kwargs=network,
            **common,
        )
    model.learn(10 * (job.begin + job.steps), callback=StopwatchCallback(watch, on_policy))
    watch.print_result()


if __name__ == "__main__":
    import stable_baselines3

    main(stable_baselines3)
