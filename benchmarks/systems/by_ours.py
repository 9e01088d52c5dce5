"""Thespis, by the function that users call: metrics, progress and checkpoints as they come by default."""

import tempfile

from shared import Stopwatch, work

import thespis


def main() -> None:
    job = work()
    watch = Stopwatch(job.begin, job.steps)

    def hear(event):
        if event.kind == "progress":
            watch.at(event.step)

    settings = [f"hidden={job.hidden},{job.hidden}", f"learning_rate={job.learning_rate}"]
    if job.length:
        settings += [f"length={job.length}", f"epochs={job.epochs}", f"minibatch={job.batch}"]
    else:
        settings += [f"batch={job.batch}", f"warmup={job.batch}", "capacity=100000"]
    with tempfile.TemporaryDirectory() as folder:
        thespis.train(
            job.algorithm,
            job.env,
            steps=job.begin + job.steps,
            seeds=job.seeds,
            envs=job.envs,
            settings=settings,
            report_every=job.begin,
            episodes=1,
            out=f"{folder}/run",
            callbacks=[hear],
        )
    watch.answer()


main()
