"""SALMON: a reward model that reads principles, and reinforcement learning that is steered by choosing them."""
