"""Attention-guided contrastive role representations."""
