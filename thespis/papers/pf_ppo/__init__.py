"""PF-PPO: PPO on responses whose ranks by reward are those where the reward model is reliable."""
