"""Critic-RM (Yu et al., 2024): a reward model that criticizes an answer before it gives it a reward."""
