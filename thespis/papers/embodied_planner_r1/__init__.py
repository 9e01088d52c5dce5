"""Embodied Planner-R1: unleashing embodied task planning ability in LLMs via reinforcement learning."""
