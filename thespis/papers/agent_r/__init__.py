"""Agent-R: training language model agents to reflect via iterative self-training."""
