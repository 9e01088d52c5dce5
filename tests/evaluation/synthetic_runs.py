"""Synthetic run directories with plausible content, for tests of reports and comparisons."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from thespis.runs.store import RunDirectory

METRICS = ("critic_loss", "actor_loss", "entropy", "temperature", "value", "gradient_norm")
FEW = METRICS[-2:]


def make_run(
    path: Path,
    *,
    seeds: int = 3,
    points: int = 20,
    steps: int = 20_000,
    start: float = -1400.0,
    end: float = -150.0,
    method: str = "sac",
    env: str = "gymnax:Pendulum-v1",
    finished: bool = True,
    bias: float = 0.0,
    gaps: bool = False,
    metrics: tuple[str, ...] = FEW,
    **config,
) -> Path:
    """Write a run whose return rises from ``start`` to ``end``; equal arguments give equal bytes."""
    rng = np.random.default_rng(seeds)
    run = RunDirectory.create(path, _config(method, env, steps, seeds) | config, metrics)
    num_points = points if finished else points // 2
    speed = rng.uniform(4, 9, seeds)
    offset = rng.normal(0, abs(end - start) * 0.02, seeds)
    for i in range(num_points):
        x = (i + 1) / points
        rows = []
        for seed in range(seeds):
            level = end + (start - end) * np.exp(-speed[seed] * x) + offset[seed]
            ended = not (gaps and (i < 4 or rng.random() < 0.3))
            noise = rng.normal(0, abs(end - start) * 0.03)
            rows.append(
                {
                    "step": int(steps * x),
                    "seed": seed,
                    "episodes": 5 if ended else 0,
                    "episode_return": level + noise if ended else None,
                    "episode_length": 200.0 if ended else None,
                    "critic_loss": float(40 * np.exp(-3 * x) + rng.gamma(2, 1)),
                    "actor_loss": float(80 * x + rng.normal(0, 4)),
                    "entropy": float(1 - 2 * x + rng.normal(0, 0.1)),
                    "temperature": float(np.exp(-4 * x) * 0.2),
                    "value": float(level / 3),
                    "gradient_norm": None if i < points // 10 else float(rng.gamma(3, 0.3)),
                }
            )
        run.append_metrics([{name: row[name] for name in run.columns} for row in rows])
        run.append_progress(int(steps * x), 0.5 * i, 2000.0)
        if i % 5 == 4:
            run.append_evaluation(int(steps * x), [[r["value"] * 3 + 20, r["value"] * 3] for r in rows], None)
    if finished:
        run.write_json("timing.json", _timing())
        run.write_json("final.json", _final(rng, seeds, end + offset, steps, abs(end - start), bias))
    return path


def _config(method: str, env: str, steps: int, seeds: int) -> dict:
    return {
        "format": 1,
        "thespis": "0.1.0",
        "method_name": method,
        "method": {
            "class": "thespis.methods.online.nowhere:SAC",
            "learning_rate": 3e-4,
            "discount": 0.99,
            "critic": {"class": "thespis.critics.value_functions:Ensemble", "size": 2, "hidden": [256, 256]},
            "entropy": {"class": "thespis.learners.off_policy.temperature:Automatic", "target": None},
            "feed": {"class": "thespis.core.feeds:Replay", "capacity": 1_000_000, "batch": 256, "warmup": 1000},
        },
        "env": env,
        "feedback": {"class": "thespis.feedback.environment:EnvironmentReward"},
        "curriculum": {"class": "thespis.curricula.fixed:FixedCurriculum"},
        "steps": steps,
        "envs": 1,
        "seeds": list(range(seeds)),
        "loop": "compiled",
        "options": {"evaluate_every": 5000, "checkpoint_every": 10000, "episodes": 20},
        "versions": {"python": "3.11.9", "jax": "0.10.2", "numpy": "2.4.6"},
        "device": "cpu (2 cores, no accelerator found)",
        "git": {"commit": "3f9d2c41aa", "dirty": False},
        "details": ["truncation bootstraps", "twin critics, the smaller value is the target", "squashed actions"],
        "bibliography": [
            {
                "title": "Soft Actor-Critic Algorithms and Applications",
                "authors": "Haarnoja et al.",
                "year": 2018,
                "id": "arXiv:1812.05905",
            }
        ],
    }


def _timing() -> dict:
    return {"compile": 9.4, "program": 71.2, "evaluation": 3.1, "checkpoint": 0.6, "total": 85.0}


def _final(rng, seeds: int, levels: np.ndarray, steps: int, span: float, bias: float) -> dict:
    def play(shift: float) -> dict:
        scores = levels[:, None] + shift + rng.normal(0, span * 0.05, (seeds, 20))
        middle = float(scores.mean())
        half = span * 0.01
        return {
            "scores": scores,
            "iqm": middle,
            "interval": [middle - half, middle + half] if seeds >= 5 else None,
            "seeds": seeds,
            "episodes": 20,
            "lengths": np.full((seeds, 20), 200),
        }

    realised = rng.normal(levels.mean() / 3, span / 20, 600)
    return {
        "step": steps,
        "state_hash": "9b1c" * 16,
        "greedy": play(0.0),
        "sampled": play(-span * 0.02),
        "calibration": {
            "predicted": realised + bias * span / 20 + rng.normal(0, span / 50, 600),
            "realised": realised,
            "episode": np.repeat(np.arange(20), 30),
            "discount": 0.99,
        },
    }
