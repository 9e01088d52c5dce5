"""GMAH: subgoal-based hierarchical reinforcement learning for multi-agent collaboration."""
