"""The schema of what is saved: audits and frontiers; written and read by one dataclass each."""

from vecveil.records.audit import AuditRecord
from vecveil.records.frontier import FrontierRecord

__all__ = ["AuditRecord", "FrontierRecord"]
