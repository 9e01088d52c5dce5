"""RLUF: reinforcement learning from users' binary reactions, mixed with other rewards by weights."""
