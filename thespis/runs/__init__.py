"""What outlives the process: events, checkpoints, configurations and the run directory."""
