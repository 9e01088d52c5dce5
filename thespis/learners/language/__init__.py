"""Learners of language models: policy gradients, preferences, supervised losses, credit for turns."""
