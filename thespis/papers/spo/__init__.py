"""SPO: reinforcement learning from preferences with win rates as rewards."""
