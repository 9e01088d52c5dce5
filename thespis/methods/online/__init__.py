"""Methods that learn from interaction with an environment: on-policy, off-policy and evolution strategies."""
