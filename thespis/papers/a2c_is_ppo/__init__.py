"""A2C is a special case of PPO."""
