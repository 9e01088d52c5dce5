"""Language models: tokens, chat templates, checkpoint files, generation and inference engines."""
