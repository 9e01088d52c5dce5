"""On-policy learners: advantages, clipped and regularized policy gradients."""
