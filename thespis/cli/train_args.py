"""Command-line options of training that ``train`` and ``sweep`` share."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal

import tyro

from thespis.cli.options import Count, optional_arg, parse_seeds
from thespis.core.errors import UserError


@dataclasses.dataclass(frozen=True)
class TrainArgs:
    """Options of training; the commands add options for devices, output and progress."""

    method: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="METHOD")]
    """The method: sac, ppo ... (thespis list methods), or your own, my_module:MyMethod. With --help after it, its
    settings are also listed."""
    env: Annotated[str | None, optional_arg("NAME")] = None
    """The environment: Pendulum-v1, gymnasium:Ant-v5, my_module:MyEnv ... (thespis list envs)."""
    env_args: Annotated[
        tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]], tyro.conf.arg(metavar="NAME=VALUE ..")
    ] = ()
    """Keyword arguments of the environment, such as frame_skip=2. The run keeps them, as NAME?frame_skip=2."""
    steps: Annotated[Count | None, optional_arg("N")] = None
    """Environment steps per seed; updates, when learning from a dataset. By default the preset's, else 100,000."""
    seeds: Annotated[str, tyro.conf.arg(metavar="K|A,B,..")] = "1"
    """Number of training seeds (3: seeds 0, 1, 2), or a list of seeds (0,3,5). They train in parallel."""
    seed: Annotated[Count | None, optional_arg("N")] = None
    """One particular training seed, in place of --seeds."""
    envs: Annotated[Count | None, optional_arg("N")] = None
    """Environments per seed; by default the preset's number, else the method's."""
    preset: Annotated[str, tyro.conf.arg(metavar="auto|none|NAME|FILE")] = "auto"
    """Tuned values for settings, steps and environments that are not given here: those for this method and environment
    if there are any (auto), none, or those of a name or TOML file (thespis list presets, docs/presets.md)."""
    model: Annotated[str | None, optional_arg("DIR|FILE.gguf|smollm2|tiny|blank")] = None
    """Initial model of language model methods: a checkpoint's directory or GGUF file, smollm2 (135M parameters), tiny
    (a small model, first pretrained on the environment's demonstrations), or blank (random weights). The same as
    --set model=."""
    set: Annotated[tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]], tyro.conf.arg(metavar="NAME=VALUE ..")] = ()
    """Settings of the method, such as learning_rate=3e-4 hidden_sizes=64,64 (thespis list methods METHOD), and of the
    feedback and the curriculum (feedback.NAME=VALUE, curriculum.NAME=VALUE)."""
    init_from: Annotated[str | None, optional_arg("RUN")] = None
    """Start with the parameters of a run of the same method, with the optimizer's state where it fits."""
    init_part: Annotated[
        tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]], tyro.conf.arg(metavar="PATH=RUN[:PATH] ..")
    ] = ()
    """Start a part of the learner with that of a run of any method: method.critic=runs/a, or, where it has another
    address there, method.network.body=runs/b:method.actor.body (docs/stages.md)."""
    feedback: Annotated[str, tyro.conf.arg(metavar="NAME|module:Class")] = "environment"
    """The learning signal: the environment's reward (environment), alone or with an exploration bonus, by random
    network distillation (rnd) or by visit counts (counts); one that is learned from demonstrations; the trained
    feedback of a run (frozen:RUN); another package's, or your own (thespis list feedback). Its settings:
    --set feedback.bonus_coef=0.1"""
    curriculum: Annotated[str | None, optional_arg("NAME|module:Class")] = None
    """What each episode begins with: levels, or what another package or you have written (thespis list curricula). Its
    settings: --set curriculum.NAME=VALUE. Ranges of parameters: --randomize; opponents in games: --opponents."""
    randomize: Annotated[
        tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]], tyro.conf.arg(metavar="NAME=LOW..HIGH ..")
    ] = ()
    """Parameters of the environment that are sampled anew for each episode, such as length=0.3..0.8."""
    opponents: Annotated[str | None, optional_arg("WHO")] = None
    """Train one player of a game against a pool of the learner's past versions (latest; uniform: sampled uniformly;
    pfsp: prioritized fictitious self-play; equilibrium: by the equilibrium of their matches), in a league with
    learners that exploit it (league), or against fixed players (runs/ppo,bot:mcts-100). Without it: self-play."""
    data: Annotated[str | None, optional_arg("DIR")] = None
    """A dataset to learn from: a directory (thespis collect), columns (.npz, .parquet), a d3rlpy file (.h5), a Hugging
    Face dataset saved on disk, minari:ID (docs/offline-data.md); of text: demonstrations:N, branches:NxK or FILE.jsonl
    (docs/language-data.md)."""
    eval_data: Annotated[str | None, optional_arg("DIR")] = None
    """Held-out data, named like --data: a run from data is evaluated on it ten times, or every --evaluate-every."""
    loop: Annotated[Literal["compiled", "host", "logged"] | None, optional_arg("{compiled,host,logged}")] = None
    """The training loop; by default the one that fits environment and method."""
    policy_lag: Annotated[Count | None, optional_arg("N")] = None
    """Learning phases by which the acting policy lags behind in the host loop; by default the method's number."""
    learners: Count = 1
    """Asynchronous learners that share one training state (as in A3C), each with its share of the environments. With
    more than one, results depend on timing."""
    latest_policy: bool = False
    """Act with the latest available policy, at most --policy-lag phases old, instead of exactly that old. This avoids
    waiting, but results depend on timing."""
    jitter: Annotated[float, tyro.conf.arg(metavar="S")] = 0.0
    """Delay acting and learning randomly by up to so many seconds, to test dependence on timing."""
    threads: Count = 1
    """Threads that step host environments, per worker. Results do not depend on it."""
    evaluate_every: Annotated[Count | None, optional_arg("N")] = None
    """Steps between evaluations during training; 0 for a final evaluation only. By default, runs of 10,000 steps and
    more are evaluated ten times where that is cheap (docs/runs.md)."""
    episodes: Count = 10
    """Episodes per seed in each evaluation, greedy and sampled each."""
    checkpoint_seconds: Annotated[float, tyro.conf.arg(metavar="S")] = 60.0
    """Seconds between checkpoints. Results do not depend on it."""

    def train_kwargs(self) -> dict[str, Any]:
        """Keyword arguments of :func:`thespis.train`."""
        _reject_paper_id(self.method)
        return {
            "method": self.method,
            "env": named_env(self.env, self.env_args),
            "steps": self.steps,
            "seeds": self._seeds(),
            "envs": self.envs,
            "settings": [*([f"model={self.model}"] if self.model else []), *flatten_option(self.set)],
            "preset": self.preset,
            "init_from": self._init_from(),
            "feedback": self.feedback,
            "curriculum": self._curriculum(),
            "data": self.data,
            "eval_data": self.eval_data,
            "loop": self.loop,
            "policy_lag": self.policy_lag,
            "learners": self.learners,
            "latest_policy": self.latest_policy,
            "jitter": self.jitter,
            "threads": self.threads,
            "evaluate_every": self.evaluate_every,
            "episodes": self.episodes,
            "checkpoint_seconds": self.checkpoint_seconds,
        }

    def _seeds(self) -> int | list[int]:
        if self.seed is None:
            return parse_seeds(self.seeds)
        if self.seeds != "1":
            raise UserError(
                f"--seed {self.seed} is one particular seed, --seeds {self.seeds} says how many or which: leave one out"
            )
        return [self.seed]

    def _init_from(self) -> Any:
        from thespis.runs.state_addresses import From

        parts = [From.parse(text) for text in flatten_option(self.init_part)]
        return [*([self.init_from] if self.init_from else []), *parts] if parts else self.init_from

    def _curriculum(self) -> list[str] | str:
        flags = {"--opponents": self.opponents, "--randomize": self.randomize, "--curriculum": self.curriculum}
        if len(given := [flag for flag, value in flags.items() if value]) > 1:
            raise UserError(f"{' and '.join(given)} cannot be combined: choose one of them")
        return self.curriculum or self.opponents or flatten_option(self.randomize)


def named_env(env: str | None, env_args: tuple[tuple[str, ...], ...]) -> str | None:
    """The environment's name with the options of ``--env-args`` in it."""
    if not env_args:
        return env
    if env is None:
        raise UserError("--env-args are for an environment: add --env NAME")
    from thespis.envs.options import add_options

    return add_options(env, flatten_option(env_args))


def flatten_option(groups: tuple[tuple[str, ...], ...]) -> list[str]:
    """All values of an option that can occur several times."""
    return [text for group in groups for text in group]


def _reject_paper_id(method: str) -> None:
    """Raise :class:`UserError` for a paper that is not a method by itself, with the command that trains it."""
    from thespis.methods.registry import REGISTRY
    from thespis.papers import registry

    if method not in REGISTRY.names() and method in registry.paper_ids():
        raise UserError(f"{method} is a paper, not a method; train it with: {registry.load_paper(method).command}")
