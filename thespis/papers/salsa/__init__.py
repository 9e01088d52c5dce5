"""SALSA: PPO for language models whose KL reference is the weight average of several fine-tuned models."""
