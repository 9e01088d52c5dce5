"""A practitioner's guide to multi-turn agentic reinforcement learning."""
