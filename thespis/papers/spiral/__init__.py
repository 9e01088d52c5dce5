"""SPIRAL: self-play on zero-sum games by multi-agent multi-turn reinforcement learning."""
