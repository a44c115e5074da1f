"""The schema of what is saved: audits, trainings, frontiers; written and read by one dataclass each."""

from vecveil.records.audit import AuditRecord
from vecveil.records.frontier import FrontierRecord
from vecveil.records.training import TrainingRecord, read_training

__all__ = [
    "AuditRecord",
    "FrontierRecord",
    "TrainingRecord",
    "read_training",
]
