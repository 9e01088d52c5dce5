"""Controllable idea proposer: rewards of several dimensions, and control words that say which of them to emphasize."""
