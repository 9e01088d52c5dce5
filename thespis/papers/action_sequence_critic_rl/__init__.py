"""Reinforcement learning with action sequences: a critic of what the next actions are worth together."""
