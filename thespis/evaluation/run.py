"""A trained run: access to its metrics, policies, evaluation and episodes."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from thespis.core.contracts import Method, Mode
from thespis.core.errors import DamagedCheckpointWarning, UserError
from thespis.core.records import EnvSpec
from thespis.envs import registry
from thespis.evaluation.actor import Actor
from thespis.evaluation.conversation import has_turns
from thespis.evaluation.episode_recording import EpisodeRecording, record_episode, write_episode
from thespis.evaluation.policy_film import Film, make_film, read_film, write_film
from thespis.evaluation.report import write_report
from thespis.evaluation.report_card import ReportCard, has_report_card, report_card
from thespis.evaluation.rollout import RolloutResult, play_episodes
from thespis.evaluation.score import evaluate_policy
from thespis.runs import checkpoint as checkpoints
from thespis.runs.config import from_config
from thespis.runs.store import RunDirectory
from thespis.runs.trust import reading
from thespis.training.assembly import METHOD_STATE_PATH, enable_compilation_cache, method_state_shapes, training_env
from thespis.training.components import with_array_leaves
from thespis.training.method_setup import LMMethod
from thespis.training.options import options_from


def resolve_env(run: RunDirectory, env: Any) -> Any:
    """The environment passed by the caller, else the one named in run.json.

    Raises :class:`UserError` for an object, and for one in a module that the run may not name.
    """
    name = run.config["env"]
    if env is not None or name is None:
        return env
    if name.startswith("object:"):
        raise UserError(f"this run's environment was an object ({name[7:]}): give it again, as env=...")
    with reading(run.trust):
        registry.resolve_env(name)  # imports the environment, if it may be
    return name


class Run:
    """A trained run: configuration, metrics, policies, evaluation and recording."""

    def __init__(self, directory: RunDirectory, env: Any, checkpoint: str | int = "latest"):
        self.directory, self._env = directory, env
        self.checkpoint_file = directory.find_checkpoint(checkpoint)
        self.path, self.config = directory.path, directory.config
        with reading(directory.trust):
            self.method: Method = with_array_leaves(from_config(self.config["method"]))
        self._loaded: tuple[EnvSpec, PyTree, int] | None = None
        self.warnings: list[str] = []
        """One line for each damaged checkpoint that was skipped when the states were read."""

    @property
    def final_scores(self) -> dict[str, Any] | None:
        """Content of final.json: greedy and sampled scores, calibration; ``None`` before the run has ended."""
        return self.directory.read_json("final.json")

    @property
    def held_out_scores(self) -> dict[str, list[float]] | None:
        """The newest metrics on the run's held-out data, a value per seed by name; ``None`` if there are none."""
        lines = self.directory.held_out()
        return lines[-1]["metrics"] if lines else None

    @property
    def is_language(self) -> bool:
        """Whether the method is one for language models."""
        return isinstance(self.method, LMMethod)

    def metrics(self) -> dict[str, np.ndarray]:
        """Columns of metrics.csv by name."""
        return self.directory.metrics()

    def make_envs(self, num_envs: int) -> Any:
        """``num_envs`` fresh host environments of this run; all of a vector environment that was given as an object."""
        env = self._training_env()
        num_envs = registry.fixed_num_envs(env) or num_envs
        return registry.make_host(env, num_envs, num_threads=options_from(self.config).threads)

    def _training_env(self) -> Any:
        environment = resolve_env(self.directory, self._env)
        if environment is None:
            raise UserError(
                f"{self.path} learned from data, without an environment to play in: train it with --env, or evaluate "
                f"it on held-out data: thespis evaluate {self.path} --eval-data FILE"
            )
        with reading(self.directory.trust):
            return training_env(environment, self.method, from_config(self.config["curriculum"]))

    @property
    def states(self) -> PyTree:
        """The method's states at the chosen checkpoint, with leading axis ``[seed]``."""
        return self._load()[1]

    def states_for_seeds(self, seeds: list[int]) -> PyTree:
        """States of some training seeds, leading axis ``[seed]``. Raises :class:`UserError` for unknown seeds."""
        if missing := [seed for seed in seeds if seed not in self.config["seeds"]]:
            raise UserError(f"this run has no seed {missing[0]}: it has {', '.join(map(str, self.config['seeds']))}")
        index = np.array([self.config["seeds"].index(seed) for seed in seeds])
        return jax.jit(lambda states: jax.tree.map(lambda x: x[index], states))(self.states)

    @property
    def spec(self) -> EnvSpec:
        """The environment's spec: spaces and limits."""
        return self._load()[0]

    @property
    def step(self) -> int:
        """Environment steps per seed at the chosen checkpoint."""
        return self._load()[2]

    def _load(self) -> tuple[EnvSpec, PyTree, int]:
        if self._loaded is None:
            spec = self._spec()
            shapes = method_state_shapes(self.method, spec, self.config["seeds"])
            if self.checkpoint_file is not None:
                states, meta = checkpoints.load(self.checkpoint_file, shapes, METHOD_STATE_PATH)
            else:
                checkpoint = self.directory.load_checkpoint(shapes, METHOD_STATE_PATH)
                if checkpoint is None:
                    raise UserError(f"{self.path} has no checkpoint yet: continue it with `thespis resume {self.path}`")
                states, meta, self.warnings = checkpoint.tree, checkpoint.meta, checkpoint.warnings
                for message in self.warnings:
                    text = f"{message}; {checkpoint.path.name} is used instead"
                    warnings.warn(text, DamagedCheckpointWarning, stacklevel=4)
            self._loaded = spec, states, int(meta["step"])
        return self._loaded

    def _spec(self) -> EnvSpec:
        if self.config["env"] is None:
            from thespis.training.data_sources import build_dataset

            with reading(self.directory.trust):
                return build_dataset(self.config["options"]["data"], None, self.method).spec
        envs = self.make_envs(1)
        envs.close()
        return envs.spec

    def evaluate(self, episodes: int = 10) -> dict[str, Any]:
        """Play greedily and by sampling; scores per seed, ``iqm`` and ``interval`` over seeds. Changes nothing."""
        score = evaluate_policy(self.method, self.states, self.make_envs, self.config["seeds"], episodes)
        return {"run": str(self.path), "step": self.step} | score

    @property
    def has_report_card(self) -> bool:
        """Whether the run's environment is a conversation whose rules say what to report."""
        if self.config["env"] is None:
            return False
        env = self._training_env()
        return registry.resolve_env(env).kind == "compiled" and has_report_card(registry.make_compiled(env))

    def report_card(self, episodes: int = 500, *, scripted: Sequence[str] = ()) -> ReportCard:
        """Play ``episodes`` conversations per seed by sampling, and count (:mod:`thespis.evaluation.report_card`).

        ``scripted``: seats that the environment's demonstrator plays. Raises ``UserError`` for an environment that is
        no conversation.
        """
        env = self._training_env()
        if registry.resolve_env(env).kind != "compiled":
            raise UserError(f"{self.config['env']} is no conversation")
        seeds = self.config["seeds"]
        return report_card(registry.make_compiled(env), self.method, self.states, episodes, scripted, seeds)

    def evaluate_held_out(self, data: str) -> dict[str, list[float]]:
        """Loss, perplexity or accuracy on held-out data, named as for ``train(data=...)``: a value per seed by name.

        Raises ``UserError`` if the method does not learn from data.
        """
        from thespis.training.held_out import HeldOutData

        with reading(self.directory.trust):
            return HeldOutData(self.method, data, resolve_env(self.directory, self._env)).evaluate(self.states)

    def actor(self, observation: Any = None, *, greedy: bool = True, seed: int | None = None) -> Any:
        """The greedy action for an observation, in the environment's units; without one, a stateful :class:`Actor`."""
        actor = Actor.from_states(self.method, self.states, self.spec, self.config["seeds"], seed, greedy=greedy)
        return actor if observation is None else actor(observation)

    def play(
        self,
        episodes: int,
        *,
        greedy: bool = True,
        num_kept: int = 0,
        seeds: list[int] | None = None,
        stream: str = "play",
    ) -> RolloutResult:
        """Play episodes with the policy of every seed (or of ``seeds``); keep the first ``num_kept`` as transitions.

        The same call gives the same episodes; another ``stream`` gives others.
        """
        chosen = self.config["seeds"] if seeds is None else seeds
        envs = self.make_envs(len(chosen) * episodes)
        try:
            mode = Mode.EXPLOIT if greedy else Mode.SAMPLE
            return play_episodes(
                self.method, self.states_for_seeds(chosen), envs, chosen, mode, num_kept=num_kept, stream=stream
            )
        finally:
            envs.close()

    def record(self, seed: int | None = None, *, greedy: bool = True, episode: int = 0) -> EpisodeRecording:
        """Play and record an episode of one training seed (the first if ``None``); each ``episode`` is another one."""
        chosen: int = self.config["seeds"][0] if seed is None else seed
        mode = Mode.EXPLOIT if greedy else Mode.SAMPLE
        states, stream = self.states_for_seeds([chosen]), f"record/{episode}" if episode else "record"
        return self.record_with(self.method, states, mode, stream, chosen)

    def write_recording(self, recording: EpisodeRecording, seed: int, mode: str, place: str = "") -> Path:
        """Write a recording of this run under ``episodes/`` and return its path, whose name ends with ``place``."""
        path = self.path / "episodes" / f"step_{self.step:012d}_seed_{seed}_{mode}{place}.npz"
        write_episode(path, recording, self.recording_metadata(seed, mode))
        return path

    def recording_metadata(self, seed: int, mode: str) -> dict[str, Any]:
        """What a recording says of its origin."""
        origin = {"run": str(self.path), "method": self.config["method_name"], "step": self.step}
        return origin | {"seed": seed, "mode": mode}

    def record_with(
        self, method: Method, states: PyTree, mode: Mode, stream: str, seed: int | None = None
    ) -> EpisodeRecording:
        """Play and record one episode of any ``method`` in this run's environment; ``states`` are of one seed."""
        chosen: int = self.config["seeds"][0] if seed is None else seed
        return record_episode(method, states, self._training_env(), self.make_envs, chosen, mode, stream)

    def film(self) -> Film | None:
        """Record a greedy episode for the report, or why that is not possible; ``None`` without an environment.

        The seed is the one whose mean greedy return is nearest to the IQM of all. Written into the run's directory; a
        film of the same checkpoint is kept.
        """
        film = read_film(self.path)
        if film is not None and film.content and film.step == self.directory.saved_step:
            return film
        if self.config["env"] is None:
            return None
        try:
            if has_turns(self.spec):
                return None  # the report shows what was said
            seed = self._typical_seed()
            recording = self.record(seed)
            length, step = len(recording.transitions.reward), self.step
            about: dict[str, Any] = {"seed": seed, "episode_return": recording.episode_return, "length": length}
            film = make_film(recording.frames, recording.fps, step=step, renderer=recording.renderer, **about)
        except UserError as error:
            film = Film(step=self.directory.saved_step, reason=str(error))
        write_film(self.path, film)
        return film

    def _typical_seed(self) -> int:
        greedy = (self.final_scores or {}).get("greedy")
        if not greedy:
            return self.config["seeds"][0]
        means = np.array([np.mean(scores) for scores in greedy["scores"]], float)
        return self.config["seeds"][int(np.nanargmin(np.abs(means - greedy["iqm"])))]

    def report(self, out: str | Path | None = None, *, film: bool = False) -> Path:
        """Write the HTML report and return its path. ``film``: record an episode for it first (:meth:`film`)."""
        if film:
            self.film()
        return write_report([self.path], Path(out) if out else self.path / "report.html")


def load(path: str | Path, env: Any = None, *, checkpoint: str | int = "latest", trust: Iterable[str] = ()) -> Run:
    """Open a run on disk. ``env`` is needed only for an environment that was passed as an object.

    ``checkpoint``: ``latest`` (the newest undamaged one), ``best`` (that with the highest mean greedy return, over
    seeds and episodes, of all evaluations of the run), or the step of one of the files under ``checkpoints/``.
    ``trust``: modules whose classes and environments the run may name, besides those of Thespis
    (:mod:`thespis.runs.trust`).
    """
    enable_compilation_cache()
    return Run(RunDirectory.open(path, trust), env, checkpoint)
