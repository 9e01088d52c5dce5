"""SAC-GLAM: improving online RL for LLM agents with soft actor-critic and hindsight relabelling."""
