"""Critic-V: a critic in words that learns from ranked critiques by DPO."""
