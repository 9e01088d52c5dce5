"""Multi-agent actor-critic for mixed cooperative-competitive environments."""
