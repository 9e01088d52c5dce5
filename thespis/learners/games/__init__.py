"""Learners for games: counterfactual regret minimization."""
