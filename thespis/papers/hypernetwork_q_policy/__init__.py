"""Critics whose weights on the action are made from the observation."""
