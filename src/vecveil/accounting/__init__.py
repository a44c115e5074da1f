"""What is promised: guarantees in their own metric, and the advantage that any attacker can have.

A name loads its module when it is used: protecting vectors needs few of them.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vecveil.accounting.calibration import (
        epsilon_of_advantage,
        epsilon_of_cosine,
        sigma_of_advantage,
    )
    from vecveil.accounting.composition import ComposedPrivacyLoss, compose
    from vecveil.accounting.gaussian import (
        GaussianPrivacyLoss,
        analytic_gaussian_sigma,
        gaussian_total_variation,
    )
    from vecveil.accounting.guarantee import Guarantee
    from vecveil.accounting.laplace_guarantee import elliptical_laplace_guarantee
    from vecveil.accounting.laplace_loss import LaplacePrivacyLoss
    from vecveil.accounting.ledger import Ledger
    from vecveil.accounting.ledger_summary import LedgerSummary
    from vecveil.accounting.lower_bound import LowerBound, epsilon_lower_bound
    from vecveil.accounting.lower_bound_audit import AuditCheck, MechanismAudit, audit_mechanism
    from vecveil.accounting.lower_bound_canaries import (
        Bonferroni,
        CanaryScoreAuditor,
        Explicit,
        Split,
    )
    from vecveil.accounting.lower_bound_declared import (
        DeclaredPair,
        declared_gaussian,
        declared_laplace,
        declared_purkayastha,
    )
    from vecveil.accounting.meaning import epsilon_meaning, expected_cosine
    from vecveil.accounting.other_guarantees import (
        distortion_guarantee,
        gaussian_guarantee,
        obfuscation_guarantee,
        purkayastha_guarantee,
        rewriting_guarantee,
    )
    from vecveil.accounting.over_pairs import ConceptLevel, concept_level
    from vecveil.accounting.privacy_loss import PrivacyLoss
    from vecveil.accounting.purkayastha_loss import PurkayasthaPrivacyLoss
    from vecveil.accounting.sphere_total_variation import purkayastha_total_variation
    from vecveil.accounting.total_variation import laplace_total_variation

_HOME = {
    "AuditCheck": "lower_bound_audit",
    "Bonferroni": "lower_bound_canaries",
    "CanaryScoreAuditor": "lower_bound_canaries",
    "ComposedPrivacyLoss": "composition",
    "ConceptLevel": "over_pairs",
    "DeclaredPair": "lower_bound_declared",
    "Explicit": "lower_bound_canaries",
    "GaussianPrivacyLoss": "gaussian",
    "Guarantee": "guarantee",
    "LaplacePrivacyLoss": "laplace_loss",
    "Ledger": "ledger",
    "LedgerSummary": "ledger_summary",
    "LowerBound": "lower_bound",
    "MechanismAudit": "lower_bound_audit",
    "PrivacyLoss": "privacy_loss",
    "PurkayasthaPrivacyLoss": "purkayastha_loss",
    "Split": "lower_bound_canaries",
    "analytic_gaussian_sigma": "gaussian",
    "audit_mechanism": "lower_bound_audit",
    "compose": "composition",
    "concept_level": "over_pairs",
    "declared_gaussian": "lower_bound_declared",
    "declared_laplace": "lower_bound_declared",
    "declared_purkayastha": "lower_bound_declared",
    "distortion_guarantee": "other_guarantees",
    "elliptical_laplace_guarantee": "laplace_guarantee",
    "epsilon_lower_bound": "lower_bound",
    "epsilon_meaning": "meaning",
    "epsilon_of_advantage": "calibration",
    "epsilon_of_cosine": "calibration",
    "expected_cosine": "meaning",
    "gaussian_guarantee": "other_guarantees",
    "gaussian_total_variation": "gaussian",
    "laplace_total_variation": "total_variation",
    "obfuscation_guarantee": "other_guarantees",
    "purkayastha_guarantee": "other_guarantees",
    "purkayastha_total_variation": "sphere_total_variation",
    "rewriting_guarantee": "other_guarantees",
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
