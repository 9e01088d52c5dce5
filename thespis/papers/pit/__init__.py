"""PIT: a policy that reads a reference response and is rewarded for the quality gap over it."""
