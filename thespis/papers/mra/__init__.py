"""MRA: learning meta representations for agents in multi-agent reinforcement learning."""
