"""Imitation learning methods: learn a policy from demonstrations."""
