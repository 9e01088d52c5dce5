"""Files of a run: events, checkpoints, configurations and the run directory."""
