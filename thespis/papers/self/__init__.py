"""SELF: a model learns to criticize and refine its answers, and then trains itself on what it has refined."""
