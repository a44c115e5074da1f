"""The records of audits and frontiers, written and read by one dataclass each."""

from vecveil.auditing.records.audit_record import AuditRecord
from vecveil.auditing.records.frontier_record import FrontierRecord

__all__ = ["AuditRecord", "FrontierRecord"]
