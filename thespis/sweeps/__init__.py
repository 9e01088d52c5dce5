"""A grid of settings times seeds: ordinary runs, spread over the processes of a Ray."""
