"""The work of every case: what each system is asked to do, as data that each one's script reads."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Work:
    """One training job. ``begin`` steps are made before the clock starts, ``steps`` while it runs; all per seed."""

    algorithm: str
    env: str
    hidden: int
    """Units of both hidden layers, of actor and critics alike."""
    batch: int
    """Transitions per update; of a minibatch, if on policy."""
    begin: int
    steps: int
    envs: int = 1
    updates: int = 1
    """Gradient updates per step of all environments, off policy."""
    length: int = 0
    """Steps per environment and rollout, on policy."""
    epochs: int = 0
    learning_rate: float = 1e-3
    seeds: int = 1
    script: str = ""
    """Before the name of each system's script."""
    rows: int = 0
    """Transitions of the dataset that is learnt from, where a step is an update; 0: it learns from the world."""

    dtype: str = "float32"
    """Of a language model's products."""

    @property
    def unit(self) -> str:
        """What is counted."""
        if self.algorithm == "generate":
            return "tokens"
        return "updates" if self.rows or self.algorithm == "grpo" else "steps"


@dataclasses.dataclass(frozen=True)
class Case:
    """A job, who does it, and how much faster than each peer we promise to be."""

    work: Work
    bars: dict[str, float]
    """Least median ratio of our steps per second to the peer's."""
    differs: str = ""
    """Where the systems do not do quite the same."""


_CHEETAH = Work("sac", "HalfCheetah-v5", 256, 256, begin=500, steps=1_500)
_PENDULUM = Work("sac", "Pendulum-v1", 64, 100, begin=1_000, steps=4_000)
_SAYING = Work("generate", "", 192, 64, begin=2 * 64 * 32, steps=20 * 64 * 32, script="language_")
_GRPO = Work("grpo", "", 192, 64, begin=4, steps=16, learning_rate=1e-5, script="grpo_")
_CARTPOLE = Work("ppo", "CartPole-v1", 64, 64, begin=16_384, steps=32_768, envs=8, length=2048, epochs=10)

CASES = {
    "sac-halfcheetah": Case(
        _CHEETAH,
        {"sb3": 2.6, "sbx": 1.3, "tianshou": 1.0},
        "Tianshou looks through all that is stored for values that are no numbers at every step: a few percent here.",
    ),
    "td3-halfcheetah": Case(dataclasses.replace(_CHEETAH, algorithm="td3"), {"sb3": 2.6, "sbx": 1.2}),
    "sac-pendulum": Case(
        _PENDULUM,
        {"sb3": 9.0, "sbx": 2.2, "rltools": 0.6},
        "Ours steps the compiled pendulum of gymnax, the peers Gymnasium's: the same equations.",
    ),
    "sac-pendulum-host": Case(dataclasses.replace(_PENDULUM, env="gymnasium:Pendulum-v1"), {"sb3": 1.0, "sbx": 1.0}),
    "ppo-halfcheetah": Case(
        Work("ppo", "HalfCheetah-v5", 64, 64, begin=8_192, steps=16_384, envs=8, length=256, epochs=10),
        {"sb3": 6.0, "sbx": 2.5, "tianshou": 1.0},
        "All step their worlds one after the other in one process.",
    ),
    "bc-halfcheetah": Case(
        Work("bc", "HalfCheetah-v5", 256, 256, begin=1_000, steps=5_000, rows=100_000),
        {"d3rlpy": 1.0},
        "Ours maximises the likelihood under a normal with a free spread, d3rlpy's deterministic policy lessens the "
        "squared error of a tanh. d3rlpy never draws the last step of an episode that was cut short, one in 1,000. "
        "Alike: dataset, two layers of relu, batches of 256 (d3rlpy's default is 100), Adam.",
    ),
    "ppo-cartpole": Case(
        _CARTPOLE,
        {"sb3": 25.0, "sbx": 8.0},
        "Ours steps the compiled cart-pole of gymnax, the peers Gymnasium's: the same equations.",
    ),
    "ppo-cartpole-64": Case(
        Work("ppo", "CartPole-v1", 64, 512, 65_536, 1_048_576, envs=64, length=32, epochs=4),
        {"rejax": 1.2},
    ),
    "ppo-cartpole-1024": Case(
        Work("ppo", "CartPole-v1", 64, 8_192, 1_048_576, 3_145_728, envs=1024, length=32, epochs=4),
        {"rejax": 1.2},
    ),
    "dqn-breakout": Case(
        Work("dqn", "Breakout-MinAtar", 64, 256, begin=32_000, steps=320_000, envs=64, learning_rate=3e-4),
        {"rejax": 1.2},
        "Alike: frames laid flat before two layers of relu, double Q, squared errors, Adam, 64 worlds, one update each "
        "tick of all, 100,000 transitions, target copied every 100 updates. Rejax samples without replacement, which "
        "takes time in proportion to its buffer, stores no true next frame at an end and clips no gradient.",
    ),
    "generation": Case(
        _SAYING,
        {"transformers": 4.0},
        "A Llama of 1.9 million random parameters says 32 tokens to each of 64 prompts of 16 tokens, drawn from all of "
        "a vocabulary of 1,700: two batches of 32 side by side, and their text; transformers makes one batch, of ids.",
    ),
    "grpo": Case(
        _GRPO,
        {"trl": 2.0},
        "The same Llama answers 8 prompts of 16 tokens 8 times, in at most 32 tokens, and makes one step on these 64 "
        "answers: no penalty on KL, losses over tokens. TRL generates with transformers, and as text in between.",
    ),
    "generation-bfloat16": Case(
        dataclasses.replace(_SAYING, dtype="bfloat16"),
        {"transformers": 4.0},
        "As generation, parameters and products of both in bfloat16; here keys and values are float32 on a CPU.",
    ),
    "grpo-bfloat16": Case(
        dataclasses.replace(_GRPO, dtype="bfloat16"),
        {"trl": 2.0},
        "As grpo, products of both in bfloat16. TRL's parameters are too, which is faster than its mixed precision "
        "here; ours stay in float32.",
    ),
    "ppo-cartpole-16-seeds": Case(
        Work("ppo", "CartPole-v1", 64, 512, 65_536, 262_144, 64, length=32, epochs=4, seeds=16),
        {"rejax": 1.0},
    ),
}
