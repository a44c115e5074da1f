"""The schema of what is saved: audits, trainings and experiments, written and read by the same dataclasses."""

from vecveil.records.audit import AuditRecord
from vecveil.records.experiment import ExperimentRecord, read_experiment
from vecveil.records.training import TrainingRecord, read_training

__all__ = [
    "AuditRecord",
    "ExperimentRecord",
    "TrainingRecord",
    "read_experiment",
    "read_training",
]
