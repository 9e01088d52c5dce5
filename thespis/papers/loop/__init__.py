"""LOOP: reinforcement learning for long-horizon interactive LLM agents."""
