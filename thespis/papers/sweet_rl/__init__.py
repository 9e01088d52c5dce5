"""SWEET-RL: training multi-turn LLM agents on collaborative reasoning tasks."""
