"""Multi-agent methods: several agents that learn together."""
