"""Run the attacks on clean and protected vectors side by side, and record the result."""

from vecveil.auditing.auditor import audit, audit_store
from vecveil.auditing.result import AuditResult

__all__ = ["AuditResult", "audit", "audit_store"]
