"""Language methods: fine-tuning and reinforcement learning of language models in dialogues."""
