"""Reflect, Retry, Reward: policy gradient on the tokens of reflections alone, by one model that also answers."""
