"""Measure the utility of released vectors: tasks, and their figures with intervals."""
