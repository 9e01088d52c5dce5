"""d3rlpy: behaviour cloning from a dataset, without log files and progress bars."""

import d3rlpy
import numpy as np
from d3rlpy.logging import NoopAdapterFactory
from d3rlpy.models import VectorEncoderFactory
from shared import Stopwatch, work


def main() -> None:
    job = work()
    watch = Stopwatch(job.begin, job.steps)
    columns = np.load(f"{job.data}/data.npz")
    dataset = d3rlpy.dataset.MDPDataset(
        observations=columns["observation"],
        actions=columns["action"],
        rewards=columns["reward"],
        terminals=columns["terminated"].astype("float32"),
        timeouts=columns["truncated"].astype("float32"),
    )
    encoder = VectorEncoderFactory(hidden_units=[job.hidden, job.hidden])
    config = d3rlpy.algos.BCConfig(batch_size=job.batch, learning_rate=job.learning_rate, encoder_factory=encoder)
    config.create(device="cpu").fit(
        dataset,
        n_steps=job.begin + job.steps,
        n_steps_per_epoch=job.begin,
        logger_adapter=NoopAdapterFactory(),
        show_progress=False,
        callback=lambda method, epoch, step: watch.at(step),
    )
    watch.print_result()


main()
