"""RefCritic (Tang et al., 2025): its task, its measures and the declaration of its trial."""
