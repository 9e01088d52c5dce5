"""The AI Economist."""
