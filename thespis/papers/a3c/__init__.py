"""Asynchronous methods for deep reinforcement learning."""
