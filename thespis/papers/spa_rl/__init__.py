"""SPA-RL: reinforcing LLM agents via stepwise progress attribution."""
