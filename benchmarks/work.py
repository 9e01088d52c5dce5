"""Benchmark cases: the work of each system, as data that its script reads."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Work:
    """One training job, per seed: ``begin`` steps before the clock starts, then ``steps`` measured steps."""

    algorithm: str
    env: str
    hidden: int
    """Units of both hidden layers of actor and critics."""
    batch: int
    """Transitions per update; on policy, per minibatch."""
    begin: int
    steps: int
    envs: int = 1
    updates: int = 1
    """Gradient updates per step of all environments; off policy only."""
    length: int = 0
    """Steps per environment and rollout; on policy only."""
    epochs: int = 0
    learning_rate: float = 1e-3
    seeds: int = 1
    script: str = ""
    """Prefix of the names of the systems' scripts."""
    rows: int = 0
    """Transitions of the dataset, where a step is an update; 0: it learns from the environment."""

    layers: int = 2
    """Hidden layers after the convolutions, for images."""
    shared: bool = True
    """Whether actor and critic share convolutions and hidden layers, for images."""
    dtype: str = "float32"
    """Data type of matrix products of a language model."""
    seats: int = 1
    """Language models that learn, each in a seat of a conversation."""

    @property
    def unit(self) -> str:
        """Unit of the rate."""
        if self.algorithm == "generate":
            return "tokens"
        return "updates" if self.rows or self.algorithm == "grpo" else "steps"


@dataclasses.dataclass(frozen=True)
class Case:
    """A job, the peers that do it, and the goal for our speed relative to each."""

    work: Work
    bars: dict[str, float]
    """Goal for the median ratio of our rate to the peer's."""
    differs: str = ""
    """Differences between the systems."""


_CHEETAH = Work("sac", "HalfCheetah-v5", 256, 256, begin=500, steps=1_500)
_PENDULUM = Work("sac", "Pendulum-v1", 64, 100, begin=1_000, steps=4_000)
_GENERATION = Work("generate", "", 192, 64, begin=2 * 64 * 32, steps=20 * 64 * 32, script="language_")
_GRPO = Work("grpo", "", 192, 64, begin=4, steps=16, learning_rate=1e-5, script="grpo_")
_CARTPOLE = Work("ppo", "CartPole-v1", 64, 64, begin=16_384, steps=32_768, envs=8, length=2048, epochs=10)
_MINATAR = (
    "Ours steps the compiled game of gymnax, SB3 the original in Python. Equal: one layer of 16 windows of 3 x 3, "
    "which actor and critic share, then 128 units."
)
_TWO_NETWORKS = (
    "Equal: one layer of 16 windows of 3 x 3, then two of 64 units, in every network. Rejax has these windows by a "
    "change of ours: its own networks flatten the image."
)

CASES = {
    "sac-halfcheetah": Case(
        _CHEETAH,
        {"sb3": 2.6, "sbx": 1.3, "tianshou": 1.0},
        "Tianshou checks its whole buffer for NaN at every step: a few percent here.",
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
        "All step their environments one after the other in one process.",
    ),
    "bc-halfcheetah": Case(
        Work("bc", "HalfCheetah-v5", 256, 256, begin=1_000, steps=5_000, rows=100_000),
        {"d3rlpy": 1.0},
        "Ours maximizes the likelihood of a normal distribution with a learned deviation; d3rlpy's deterministic "
        "policy minimizes the squared error of a tanh. d3rlpy never samples the last step of a truncated episode, one "
        "in 1,000. Equal: dataset, two ReLU layers, batches of 256 (d3rlpy's default is 100), Adam.",
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
        "Equal: flattened frames, two ReLU layers, double Q, squared errors, Adam, 64 environments, one update per "
        "step of all, 100,000 transitions, target copied every 100 updates. Rejax samples without replacement, which "
        "takes time proportional to its buffer, does not store the final observation of an episode and does not clip "
        "gradients.",
    ),
    "ppo-atari-breakout": Case(
        Work(
            "ppo",
            "ALE/Breakout-v5",
            512,
            256,
            begin=2_048,
            steps=6_144,
            envs=8,
            length=128,
            epochs=4,
            learning_rate=2.5e-4,
            script="images_",
            layers=1,
        ),
        {"sb3": 1.3},
        "Equal: three shared convolutions and 512 units, four epochs of four minibatches, no sticky actions. Ours "
        "reduces the screens in C++, SB3 by functions of Gymnasium and OpenCV in Python; neither has worker processes.",
    ),
    "ppo-minatar": Case(
        Work(
            "ppo",
            "Breakout-MinAtar",
            128,
            256,
            begin=16_384,
            steps=65_536,
            envs=8,
            length=128,
            epochs=4,
            script="images_",
            layers=1,
        ),
        {"sb3": 5.0},
        _MINATAR,
    ),
    "ppo-minatar-64": Case(
        Work(
            "ppo",
            "Breakout-MinAtar",
            64,
            1_024,
            begin=65_536,
            steps=262_144,
            envs=64,
            length=128,
            epochs=4,
            script="images_",
            shared=False,
        ),
        {"rejax": 1.2},
        _TWO_NETWORKS,
    ),
    "dqn-minatar": Case(
        Work(
            "dqn",
            "Breakout-MinAtar",
            128,
            32,
            begin=4_000,
            steps=20_000,
            learning_rate=1e-4,
            script="images_",
            layers=1,
        ),
        {"sb3": 5.0},
        _MINATAR + " Ours uses double Q-learning.",
    ),
    "dqn-minatar-64": Case(
        Work(
            "dqn",
            "Breakout-MinAtar",
            64,
            256,
            begin=32_000,
            steps=128_000,
            envs=64,
            learning_rate=3e-4,
            script="images_",
        ),
        {"rejax": 1.2},
        _TWO_NETWORKS + " Otherwise as dqn-breakout.",
    ),
    "generation": Case(
        _GENERATION,
        {"transformers": 4.0},
        "A Llama with 1.9 million random parameters generates 32 tokens for each of 64 prompts of 16 tokens, sampled "
        "from a vocabulary of 1,700: two concurrent batches of 32, with their text; transformers generates one batch, "
        "of tokens.",
    ),
    "grpo": Case(
        _GRPO,
        {"trl": 2.0},
        "The same Llama answers 8 prompts of 16 tokens 8 times, with at most 32 tokens, and makes one step on these "
        "64 responses: no KL penalty, losses averaged over tokens. TRL generates with transformers and passes "
        "responses as text.",
    ),
    "grpo-seats": Case(
        dataclasses.replace(_GRPO, seats=2),
        {"trl": 2.0},
        "As grpo, but ours trains two models at once, each in a seat of a conversation: both answer 8 prompts 8 times, "
        "and each makes one step on its 64 responses. Counted are the updates of both; TRL's one model makes as many.",
    ),
    "generation-bfloat16": Case(
        dataclasses.replace(_GENERATION, dtype="bfloat16"),
        {"transformers": 4.0},
        "As generation, with parameters and products of both in bfloat16; ours stores keys and values as float32 on a "
        "CPU.",
    ),
    "grpo-bfloat16": Case(
        dataclasses.replace(_GRPO, dtype="bfloat16"),
        {"trl": 2.0},
        "As grpo, with products of both in bfloat16. TRL's parameters are bfloat16, too, which is faster than its "
        "mixed precision here; ours stay float32.",
    ),
    "ppo-cartpole-16-seeds": Case(
        Work("ppo", "CartPole-v1", 64, 512, 65_536, 262_144, 64, length=32, epochs=4, seeds=16),
        {"rejax": 1.0},
    ),
}
