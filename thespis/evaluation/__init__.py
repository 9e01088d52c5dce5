"""Evaluation: playing episodes, statistics over seeds, comparison of runs, reports."""
