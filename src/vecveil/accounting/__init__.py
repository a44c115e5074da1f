"""What is promised: guarantees in their own metric, and the advantage that any attacker can have."""

from vecveil.accounting.guarantee import Guarantee, elliptical_laplace_guarantee
from vecveil.accounting.ledger import Ledger
from vecveil.accounting.ledger_summary import LedgerSummary
from vecveil.accounting.total_variation import laplace_total_variation

__all__ = [
    "Guarantee",
    "Ledger",
    "LedgerSummary",
    "elliptical_laplace_guarantee",
    "laplace_total_variation",
]
