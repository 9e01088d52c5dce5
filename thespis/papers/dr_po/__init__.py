"""DR-PO: online policy optimization of language models that begins within the responses of a preference dataset."""
