"""Learning to fly in seconds."""
