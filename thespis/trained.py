"""A trained run: its numbers, its actors, its episodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from thespis.assembly import METHOD_STATE, method_states_like, seated
from thespis.core.contracts import Method, Mode
from thespis.core.errors import UserError
from thespis.core.records import EnvSpec
from thespis.evaluation.acting import Actor
from thespis.evaluation.play import Played, play
from thespis.evaluation.recording import Recording, record
from thespis.evaluation.report import write_report
from thespis.evaluation.score import final_score
from thespis.loops.parts import with_array_leaves
from thespis.options import options_of
from thespis.runs.config import from_config
from thespis.runs.store import RunDirectory


def environment_of(config: dict[str, Any], env: Any) -> Any:
    """The environment given, else the name in a run.json. Raises :class:`UserError` if that was an object."""
    name = config["env"]
    if env is None and name is not None and name.startswith("object:"):
        raise UserError(f"this run's environment was an object ({name[7:]}): give it again, as env=...")
    return name if env is None else env


class Run:
    """A trained run: its configuration, numbers and actors."""

    def __init__(self, directory: RunDirectory, env: Any):
        self.directory, self._env = directory, env
        self.path, self.config = directory.path, directory.config
        self.method: Method = with_array_leaves(from_config(self.config["method"]))
        self._loaded: tuple[EnvSpec, PyTree, int] | None = None

    @property
    def final(self) -> dict[str, Any] | None:
        """Content of final.json: greedy and sampled scores, calibration; ``None`` before the run's end."""
        return self.directory.read_json("final.json")

    def metrics(self) -> dict[str, np.ndarray]:
        """Columns of metrics.csv."""
        return self.directory.metrics()

    def worlds(self, n: int) -> Any:
        """``n`` fresh host environments of this run."""
        from thespis.envs import registry

        return registry.host(self._world(), n, threads=options_of(self.config).threads)

    def _world(self) -> Any:
        environment = environment_of(self.config, self._env)
        return seated(environment, self.method, from_config(self.config["curriculum"]))

    @property
    def states(self) -> PyTree:
        """The method's states at the newest undamaged checkpoint, leading axis ``[seed]``."""
        return self._load()[1]

    def states_of(self, seeds: list[int]) -> PyTree:
        """The states of some training seeds, leading axis ``[seed]``. Raises :class:`UserError` for others."""
        if missing := [seed for seed in seeds if seed not in self.config["seeds"]]:
            raise UserError(f"this run has no seed {missing[0]}: it has {', '.join(map(str, self.config['seeds']))}")
        index = np.array([self.config["seeds"].index(seed) for seed in seeds])
        return jax.jit(lambda states: jax.tree.map(lambda x: x[index], states))(self.states)

    @property
    def spec(self) -> EnvSpec:
        """Spaces of the environment."""
        return self._load()[0]

    @property
    def step(self) -> int:
        """Steps per seed at that checkpoint."""
        return self._load()[2]

    def _load(self) -> tuple[EnvSpec, PyTree, int]:
        if self._loaded is None:
            spec = self._spec()
            like = method_states_like(self.method, spec, self.config["seeds"])
            found = self.directory.load_checkpoint(like, METHOD_STATE)
            if found is None:
                raise UserError(f"{self.path} has no checkpoint yet: continue it with `thespis resume {self.path}`")
            self._loaded = spec, found.tree, int(found.meta["step"])
        return self._loaded

    def _spec(self) -> EnvSpec:
        if self.config["env"] is None:
            from thespis.sources import dataset_of

            return dataset_of(self.config["options"]["data"], None, self.method).spec
        worlds = self.worlds(1)
        worlds.close()
        return worlds.spec

    def evaluate(self, episodes: int = 10) -> dict[str, Any]:
        """Play greedily and by sampling; scores per seed, ``iqm`` and ``interval`` over seeds. Changes nothing."""
        score = final_score(self.method, self.states, self.worlds, self.config["seeds"], episodes)
        return {"run": str(self.path), "step": self.step} | score

    def actor(self, observation: Any = None, *, greedy: bool = True, seed: int | None = None) -> Any:
        """With an observation: the greedy action for it, in the world's units. Without: an :class:`Actor` to keep."""
        actor = Actor.of(self.method, self.states, self.spec, self.config["seeds"], seed, greedy=greedy)
        return actor if observation is None else actor(observation)

    def play(
        self, episodes: int, *, greedy: bool = True, keep: int = 0, seeds: list[int] | None = None, stream: str = "play"
    ) -> Played:
        """Play episodes of every seed (or of ``seeds``) and keep the first ``keep`` of each as transitions.

        The same call gives the same episodes; another ``stream`` gives others.
        """
        chosen = self.config["seeds"] if seeds is None else seeds
        worlds = self.worlds(len(chosen) * episodes)
        try:
            mode = Mode.EXPLOIT if greedy else Mode.SAMPLE
            return play(self.method, self.states_of(chosen), worlds, chosen, mode, keep=keep, stream=stream)
        finally:
            worlds.close()

    def record(self, seed: int | None = None, *, greedy: bool = True) -> Recording:
        """Play and film one episode of one training seed (the first if ``None``)."""
        chosen: int = self.config["seeds"][0] if seed is None else seed
        mode = Mode.EXPLOIT if greedy else Mode.SAMPLE
        return record(self.method, self.states_of([chosen]), self._world(), self.worlds, chosen, mode)

    def report(self, out: str | Path | None = None) -> Path:
        """Write the report and return its path."""
        return write_report([self.path], Path(out) if out else self.path / "report.html")
