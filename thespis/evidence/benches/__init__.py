"""Benches: environments, budgets and tuned baselines that a family of papers shares."""
