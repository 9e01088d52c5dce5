"""Regret preference model: rewards learned from preferences that follow what segments lose, not what they earn."""
