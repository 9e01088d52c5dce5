"""The task of the maze benchmark: small mazes, held-out test mazes, and settings that both libraries use.

Mazes of 9 by 9 cells can be learned on a CPU; otherwise the settings are those of jaxued's examples. There, a run has
245 million steps.
"""

from __future__ import annotations

from pathlib import Path

SIZE, WALLS = 9, 20
NUM_STEPS, NUM_TRAIN_ENVS, NUM_EPOCHS, NUM_MINIBATCHES = 256, 32, 5, 4
LEARNING_RATE, CAPACITY = 5e-4, 512
TEST_MAZES = Path(__file__).parent / "test_mazes.txt"


def read_mazes() -> list[list[str]]:
    """The rows of each test maze."""
    return [maze.splitlines() for maze in TEST_MAZES.read_text().strip().split("\n\n")]
