"""Worlds that are talked to: what is said and heard is token ids."""
