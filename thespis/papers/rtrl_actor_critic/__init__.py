"""Real-time recurrent learning in an actor-critic."""
