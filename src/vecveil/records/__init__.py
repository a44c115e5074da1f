"""The schema of what is saved: audits, trainings and experiments, written and read by the same dataclasses."""
