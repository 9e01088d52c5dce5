"""DPO against PPO: preference optimization with and without a reward model, on pairs of the initial model."""
