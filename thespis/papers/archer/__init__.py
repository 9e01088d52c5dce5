"""ArCHer: training language model agents via hierarchical multi-turn RL."""
