"""Recursive self-critiquing (Wen et al., 2025): its task, its seats, its measures and the declaration of its trial."""
