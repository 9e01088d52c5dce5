"""MultiCritique (Lan et al., 2024): its critics and their aggregation, and the declaration of its trial."""
