"""Datasets, replay buffers and other stores of experience: storing, slicing and sampling."""
