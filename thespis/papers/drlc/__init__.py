"""DRLC: a critic marks spans of a response as good or bad, and their tokens are rewarded beside the sequence."""
