"""Run the attacks on clean and protected vectors side by side, and record the result."""

from vecveil.auditing.audit import audit
from vecveil.auditing.result import AuditResult
from vecveil.auditing.store import audit_store

__all__ = ["AuditResult", "audit", "audit_store"]
