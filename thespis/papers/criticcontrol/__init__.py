"""CriticControl: critic-guided decoding for controlled text generation."""
