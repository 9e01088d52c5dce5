"""Learners: update rules, losses and learner states."""
