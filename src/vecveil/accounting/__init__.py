"""What is promised: guarantees in their own metric, and the advantage that any attacker can have.

A name loads its module when it is used: protecting vectors needs few of them.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vecveil.accounting.calibration import (
        epsilon_meaning,
        epsilon_of_advantage,
        epsilon_of_cosine,
        expected_cosine,
        sigma_of_advantage,
    )
    from vecveil.accounting.composition import ComposedPrivacyLoss, compose
    from vecveil.accounting.gaussian import (
        GaussianPrivacyLoss,
        analytic_gaussian_sigma,
        gaussian_total_variation,
    )
    from vecveil.accounting.guarantee import (
        Guarantee,
        distortion_guarantee,
        elliptical_laplace_guarantee,
        gaussian_guarantee,
        obfuscation_guarantee,
        purkayastha_guarantee,
        rewriting_guarantee,
    )
    from vecveil.accounting.ledger import Ledger, LedgerSummary
    from vecveil.accounting.lower_bound import (
        Bonferroni,
        CanaryScoreAuditor,
        Explicit,
        LowerBound,
        Split,
        epsilon_lower_bound,
    )
    from vecveil.accounting.lower_bound_audit import AuditCheck, MechanismAudit, audit_mechanism
    from vecveil.accounting.lower_bound_declared import (
        DeclaredPair,
        declared_gaussian,
        declared_laplace,
        declared_purkayastha,
    )
    from vecveil.accounting.over_pairs import ConceptLevel, concept_level
    from vecveil.accounting.privacy_loss import PrivacyLoss
    from vecveil.accounting.total_variation import (
        laplace_total_variation,
        purkayastha_total_variation,
    )
    from vecveil.accounting.two_centre import LaplacePrivacyLoss, PurkayasthaPrivacyLoss

_HOME = {
    "AuditCheck": "lower_bound_audit",
    "Bonferroni": "lower_bound",
    "CanaryScoreAuditor": "lower_bound",
    "ComposedPrivacyLoss": "composition",
    "ConceptLevel": "over_pairs",
    "DeclaredPair": "lower_bound_declared",
    "Explicit": "lower_bound",
    "GaussianPrivacyLoss": "gaussian",
    "Guarantee": "guarantee",
    "LaplacePrivacyLoss": "two_centre",
    "Ledger": "ledger",
    "LedgerSummary": "ledger",
    "LowerBound": "lower_bound",
    "MechanismAudit": "lower_bound_audit",
    "PrivacyLoss": "privacy_loss",
    "PurkayasthaPrivacyLoss": "two_centre",
    "Split": "lower_bound",
    "analytic_gaussian_sigma": "gaussian",
    "audit_mechanism": "lower_bound_audit",
    "compose": "composition",
    "concept_level": "over_pairs",
    "declared_gaussian": "lower_bound_declared",
    "declared_laplace": "lower_bound_declared",
    "declared_purkayastha": "lower_bound_declared",
    "distortion_guarantee": "guarantee",
    "elliptical_laplace_guarantee": "guarantee",
    "epsilon_lower_bound": "lower_bound",
    "epsilon_meaning": "calibration",
    "epsilon_of_advantage": "calibration",
    "epsilon_of_cosine": "calibration",
    "expected_cosine": "calibration",
    "gaussian_guarantee": "guarantee",
    "gaussian_total_variation": "gaussian",
    "laplace_total_variation": "total_variation",
    "obfuscation_guarantee": "guarantee",
    "purkayastha_guarantee": "guarantee",
    "purkayastha_total_variation": "total_variation",
    "rewriting_guarantee": "guarantee",
    "sigma_of_advantage": "calibration",
}

__all__ = [
    "AuditCheck",
    "Bonferroni",
    "CanaryScoreAuditor",
    "ComposedPrivacyLoss",
    "ConceptLevel",
    "DeclaredPair",
    "Explicit",
    "GaussianPrivacyLoss",
    "Guarantee",
    "LaplacePrivacyLoss",
    "Ledger",
    "LedgerSummary",
    "LowerBound",
    "MechanismAudit",
    "PrivacyLoss",
    "PurkayasthaPrivacyLoss",
    "Split",
    "analytic_gaussian_sigma",
    "audit_mechanism",
    "compose",
    "concept_level",
    "declared_gaussian",
    "declared_laplace",
    "declared_purkayastha",
    "distortion_guarantee",
    "elliptical_laplace_guarantee",
    "epsilon_lower_bound",
    "epsilon_meaning",
    "epsilon_of_advantage",
    "epsilon_of_cosine",
    "expected_cosine",
    "gaussian_guarantee",
    "gaussian_total_variation",
    "laplace_total_variation",
    "obfuscation_guarantee",
    "purkayastha_guarantee",
    "purkayastha_total_variation",
    "rewriting_guarantee",
    "sigma_of_advantage",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"vecveil.accounting.{_HOME[name]}"), name)
    raise AttributeError(f"module 'vecveil.accounting' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
