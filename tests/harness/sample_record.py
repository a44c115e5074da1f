"""A made-up audit record of the usual case; every figure in it is invented."""

from __future__ import annotations

from typing import Any

from harness.sample_attacks import every_family, figure, settle

__all__ = ["formal"]


def frameworks() -> list[dict[str, Any]]:
    return [
        {
            "framework": "OWASP Top 10 for LLM Applications 2025",
            "item": "LLM08:2025",
            "title": "Vector and Embedding Weaknesses",
            "finding": "Token inference 22.9 % (R-precision, chance 12.2 %), above chance.",
            "attacks": ["mlp-adaptive", "logistic-probe"],
        },
        {
            "framework": "OWASP AISVS 1.0",
            "item": "C8.2",
            "title": "Embedding Sanitization & Validation",
            "finding": "Not tested.",
            "attacks": [],
        },
    ]


def criterion(name: str, attack: str, metric: str, *shares: float) -> dict[str, Any]:
    known = figure(metric, *shares) | {"attack": attack, "unit": "text", "n": 500}
    return {"criterion": name, "figures": [known], "missing": None}


def formal() -> dict[str, Any]:
    """Return the usual case: formal, leakage well below clean and above chance."""
    terms = [
        {
            "term": None,
            "count": 214 - 8 * i,
            "clean": round(0.86 - 0.013 * i, 3),
            "value": round(0.08 + 0.017 * ((i * 7) % 13), 3),
            "chance": round(max(0.30 - 0.02 * i, 0.004), 3),
        }
        for i in range(12)
    ]
    return settle(
        {
            "schema": "vecveil.audit/2",
            "kind": "protector",
            "vecveil": "0.1.0",
            "created": "2026-01-15T09:30:00+00:00",
            "command": "vecveil audit notes.csv -p drug.vecveil --json audit.json --html audit.html",
            "concept": "drug",
            "method": "subspace",
            "parameters": {
                "epsilon": 1536.0,
                "noise_to_signal": 0.25,
                "dimension": 384,
                "erased_directions": 80,
                "kept_directions": 128,
                "flattening": 0.6,
            },
            "encoder": {
                "name": "minilm",
                "fingerprint": "5f2c9e0b71aa43d8",
                "precision": "float32",
                "options": {},
                "probe": [0.41, 0.12],
                "norms": [1.0, 1.0],
            },
            "randomness": "secure",
            "texts": {
                "total": 11214,
                "with_concept": 7072,
                "without_concept": 4142,
                "emptied": 0,
                "words": 310,
                "word_occurrences": 10820,
                "vocabulary": 104,
                "token_instances": 9921,
            },
            "split": {"unit": "text group", "groups": 6630, "train": 4419, "validation": 539, "test": 2114},
            "guarantee": {
                "kind": "formal",
                "statement": "The released vector of a text satisfies metric differential privacy: for "
                "any two texts, the odds of any outcome differ at most by the factor "
                "exp(ε · distance of their mapped vectors).",
                "epsilon": 1536.0,
                "unit": "one text (one released vector)",
                "metric": "Mahalanobis distance of the vectors after the map T",
                "neighbours": "any two texts, at the distance of their vectors",
                "epsilon_euclidean_worst": 1536.0,
                **dict.fromkeys(("epsilon_euclidean_best", "dimension", "noise_norm")),
                **dict.fromkeys(("delta", "mu", "mu_euclidean_worst")),
                "hidden_directions": 256,
                "promised": [
                    "Differences along the 80 erased and 176 truncated directions are hidden.",
                    "Anything computed from a protected vector alone keeps the guarantee.",
                ],
                "not_promised": [
                    "That no concept token can be inferred: other tokens of the text may give it away.",
                    "Protection of a text released many times with fresh noise: losses add up.",
                    "Secrecy of the protector file, which was fitted on texts and is not private.",
                ],
                "conditional_on": [
                    "The map, the scale of the noise and ε as fitted, taken as fixed.",
                    "A cryptographic generator for the noise.",
                ],
            },
            "concept_distance": None,
            "utility": {
                "similarity": {
                    "label": "Pairwise similarity",
                    "metric": "Pearson of cosines",
                    "clean": 1.0,
                    "value": 0.953,
                    "relative": 0.953,
                    "low": 0.949,
                    "high": 0.957,
                    "n": 20000,
                    "sides": "both",
                },
                "neighbours": {
                    "label": "Nearest neighbours",
                    "metric": "recall@10",
                    "clean": 1.0,
                    "value": 0.712,
                    "relative": 0.712,
                    "low": 0.701,
                    "high": 0.723,
                    "n": 1000,
                    "sides": "both",
                },
                "retrieval": {
                    "label": "Retrieval",
                    "metric": "nDCG@10",
                    "clean": 0.402,
                    "value": 0.374,
                    "relative": 0.9303,
                    "low": 0.351,
                    "high": 0.397,
                    "n": 225,
                    "sides": "documents",
                },
            },
            "attacks": every_family(),
            "anonymity": {
                "schema": "vecveil.anonymity/1",
                "subjects": None,
                "criteria": [
                    criterion("singling-out", "substitution-mahalanobis", "top-1 of 10", 0.781, 1.0, 0.1),
                    criterion("linkability", "alignment-procrustes", "top-1 with 1000 pairs", 0.338, 0.99, 0.0005),
                    criterion("inference", "mlp-adaptive", "R-precision", 0.229, 0.727, 0.122),
                ],
            },
            "worst": "mlp-adaptive",
            "terms": terms,
            "limits": [
                "Attackers that know other texts of the same author were not tried.",
                "Terms that occur fewer than 15 times are not in the figures.",
                "Pretrained decoders were not tried.",
            ],
            "lint": [],
            "frameworks": frameworks(),
            "reconstructions": [],
            "skipped": [
                {
                    "attack": "vec2text",
                    "family": "reconstruction",
                    "reason": "The quick tier leaves out what takes minutes.",
                    "code": "quick-tier",
                }
            ],
            "seed": 0,
            "tier": "quick",
            "seconds": 96.4,
        }
    )
