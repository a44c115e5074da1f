"""Privacy accounting: exact losses, guarantees in their own metric, attacker advantage, ledger."""

from vecveil.privacy.accounting.advantage import (
    ConceptLevel,
    concept_level,
    epsilon_meaning,
    epsilon_of_advantage,
    epsilon_of_cosine,
    expected_cosine,
    gaussian_total_variation,
    laplace_total_variation,
    purkayastha_total_variation,
    sigma_of_advantage,
)
from vecveil.privacy.accounting.guarantee import (
    Guarantee,
    distortion_guarantee,
    elliptical_laplace_guarantee,
    gaussian_guarantee,
    obfuscation_guarantee,
    purkayastha_guarantee,
    rewriting_guarantee,
)
from vecveil.privacy.accounting.ledger import Ledger, LedgerSummary
from vecveil.privacy.accounting.privacy_loss import (
    ComposedPrivacyLoss,
    GaussianPrivacyLoss,
    PrivacyLoss,
    analytic_gaussian_sigma,
    compose,
)
from vecveil.privacy.accounting.two_centre import LaplacePrivacyLoss, PurkayasthaPrivacyLoss

__all__ = [
    "ComposedPrivacyLoss",
    "ConceptLevel",
    "GaussianPrivacyLoss",
    "Guarantee",
    "LaplacePrivacyLoss",
    "Ledger",
    "LedgerSummary",
    "PrivacyLoss",
    "PurkayasthaPrivacyLoss",
    "analytic_gaussian_sigma",
    "compose",
    "concept_level",
    "distortion_guarantee",
    "elliptical_laplace_guarantee",
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
