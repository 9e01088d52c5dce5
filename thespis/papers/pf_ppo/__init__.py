"""PF-PPO: policy filtration, RLHF that learns only from responses at ranks where the reward model is reliable."""
