"""The schema of what is saved: audits, trainings, experiments, frontiers; written and read by one dataclass each."""

from vecveil.records.audit import AuditRecord
from vecveil.records.experiment import ExperimentRecord, read_experiment
from vecveil.records.frontier import FrontierRecord
from vecveil.records.training import TrainingRecord, read_training

__all__ = [
    "AuditRecord",
    "ExperimentRecord",
    "FrontierRecord",
    "TrainingRecord",
    "read_experiment",
    "read_training",
]
