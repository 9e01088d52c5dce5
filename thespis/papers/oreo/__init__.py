"""Offline reinforcement learning for LLM multi-step reasoning."""
