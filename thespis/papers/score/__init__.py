"""SCoRe: training language models to self-correct via reinforcement learning."""
