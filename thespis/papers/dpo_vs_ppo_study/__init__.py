"""DPO against PPO: a study of how both treat responses that are not in the preference data."""
