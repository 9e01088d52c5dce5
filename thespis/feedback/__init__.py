"""Feedback: sources of the reward that a learner is trained on."""
