"""Locate a concept in the vectors: masks, covariances and subspaces, as noise shapes and linear maps."""

from vecveil.privacy.sensitivity.closed_forms import (
    combine_shapes,
    concept_covariance_shape,
    diagonal_concept_shape,
    difference_sensitivity,
    difference_shape,
    label_shape,
    low_rank_concept_shape,
    optimal_shape,
)
from vecveil.privacy.sensitivity.concept_subspace import ConceptDirections, Moments, concept_directions, subspace_map
from vecveil.privacy.sensitivity.hard_concrete import HardConcreteMask, MaskOptions, fit_hard_concrete_mask
from vecveil.privacy.sensitivity.shapes import LinearMap, NoiseShape

__all__ = [
    "ConceptDirections",
    "HardConcreteMask",
    "LinearMap",
    "MaskOptions",
    "Moments",
    "NoiseShape",
    "combine_shapes",
    "concept_covariance_shape",
    "concept_directions",
    "diagonal_concept_shape",
    "difference_sensitivity",
    "difference_shape",
    "fit_hard_concrete_mask",
    "label_shape",
    "low_rank_concept_shape",
    "optimal_shape",
    "subspace_map",
]
