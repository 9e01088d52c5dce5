"""RL4F: a critic that is trained by PPO on what a frozen model makes of its critiques."""
