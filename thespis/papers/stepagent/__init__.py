"""StepAgent: from novice to expert, by step-wise reinforcement learning."""
