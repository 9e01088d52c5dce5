"""AgentPRM: process reward models for LLM agents."""
