"""VPL: a user's latent, inferred from a few of their comparisons, on which a reward model and a policy stand."""
