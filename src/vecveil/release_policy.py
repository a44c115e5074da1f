"""Alias of `vecveil.protector.policy`, for programs that import it by its first name."""

from vecveil.protector.policy import QUERY_PROTECTIONS, QueryProtection, ReleasePolicy

__all__ = ["QUERY_PROTECTIONS", "QueryProtection", "ReleasePolicy"]
