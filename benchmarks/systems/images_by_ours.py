"""Thespis on images, by ``thespis.train`` as users call it."""

import tempfile

from shared import DQN_BUFFER_SIZE, DQN_INTERVAL, MINATAR_FILTERS, TARGET_EVERY, Stopwatch, work

import thespis


def main() -> None:
    job = work()
    watch = Stopwatch(job.begin, job.steps)
    is_atari = job.env.startswith("ALE/")

    def on_event(event):
        if event.kind == "progress":
            watch.at(event.step)

    settings = {"hidden_sizes": (job.hidden,) * job.layers, "learning_rate": job.learning_rate}
    if not is_atari:
        settings |= {"encoder": "MinAtarCNN", "encoder.num_filters": MINATAR_FILTERS}
    if job.algorithm == "ppo":
        settings |= {"num_steps": job.length, "num_epochs": job.epochs, "minibatch_size": job.batch}
        settings |= {"share_encoder": job.shared, "activation": "relu"}
    else:
        settings |= {"batch_size": job.batch, "learning_starts": job.batch, "buffer_size": DQN_BUFFER_SIZE}
        settings |= {"update_interval": DQN_INTERVAL if job.envs == 1 else 1, "target_update_interval": TARGET_EVERY}
    with tempfile.TemporaryDirectory() as folder:
        thespis.train(
            job.algorithm,
            job.env,
            env_args={"repeat_action_probability": 0.0} if is_atari else None,
            steps=job.begin + job.steps,
            envs=job.envs,
            settings=settings,
            report_every=job.begin,
            evaluate_every=0,
            episodes=1,
            out=f"{folder}/run",
            preset="none",
            callbacks=[on_event],
        )
    watch.print_result()


main()
