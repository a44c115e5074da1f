"""Runs the attacks on clean and protected vectors side by side and assembles the record."""

from vecveil.auditing.audit import audit
from vecveil.auditing.result import AuditResult

__all__ = ["AuditResult", "audit"]
