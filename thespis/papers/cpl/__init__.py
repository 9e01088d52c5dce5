"""Contrastive preference learning: a policy from preferences between segments, without reward or values."""
