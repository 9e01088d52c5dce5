"""Pictures of the maze: walls grey, goal green, agent red, and what it sees brighter, as in Minigrid."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, UInt8

from thespis.envs.compiled.maze_levels import DIRECTIONS, MazeLevel

TILE_PIXELS = 16
"""Pixels on a side of a cell."""
FREE, WALL, GOAL = 0, 1, 2
_COLORS = np.array([(0, 0, 0), (100, 100, 100), (0, 200, 0)])
_AGENT_COLOR, _LINE_COLOR = np.array((230, 40, 30)), _COLORS[WALL]


def draw_maze(
    level: MazeLevel,
    position: Int[Array, "2"],
    direction: Int[Array, ""],
    seen: Bool[Array, "height_with_walls width_with_walls"],
) -> UInt8[Array, "rows columns 3"]:
    """Draw a level with its outer walls, the agent at ``position``, and the cells that it has ``seen`` brighter."""
    kinds = level.walls.astype("int32").at[level.goal[0], level.goal[1]].set(GOAL)
    kinds = jnp.pad(kinds, 1, constant_values=WALL)
    tiles = jnp.where(_lines()[..., None], _LINE_COLOR, jnp.asarray(_COLORS)[kinds][:, :, None, None])
    row, column = position + 1
    arrow = jnp.asarray(np.stack([np.rot90(_arrow(), -turns) for turns in range(len(DIRECTIONS))]))[direction]
    tiles = tiles.at[row, column].set(jnp.where(arrow[..., None], _AGENT_COLOR, tiles[row, column]))
    tiles = jnp.where(seen[:, :, None, None, None], tiles + (255 - tiles) * 3 // 10, tiles)
    height, width = kinds.shape
    return tiles.swapaxes(1, 2).reshape(height * TILE_PIXELS, width * TILE_PIXELS, 3).astype("uint8")


def _lines() -> np.ndarray:
    """Pixels of a tile on the lines between cells."""
    lines = np.zeros((TILE_PIXELS, TILE_PIXELS), bool)
    lines[0] = lines[:, 0] = True
    return lines


def _arrow() -> np.ndarray:
    """Pixels of a tile that the agent's triangle covers when it looks east."""
    tip, base, half_width = 0.88, 0.15, 0.35
    centres = (np.arange(TILE_PIXELS) + 0.5) / TILE_PIXELS
    across, along = np.meshgrid(centres, centres, indexing="ij")
    return (along > base) & (np.abs(across - 0.5) < half_width * (tip - along) / (tip - base))
