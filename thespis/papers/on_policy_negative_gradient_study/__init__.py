"""On-policy data and negative gradients: a study of what makes preference fine-tuning work."""
