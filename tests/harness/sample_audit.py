"""Made-up audit records in the form of docs/formats.md, for tests of what draws them.

Every figure here is invented; no record came from an audit.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

HOSTILE = (
    '</script></style></title><img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'
)

_TERMS = [
    "ibuprofen",
    "warfarin",
    "insulin",
    "metformin",
    "aspirin",
    "lisinopril",
    "prednisone",
    "amoxicillin",
    "heparin",
    "codeine",
    "methotrexate",
    "lithium",
]


def figure(
    metric: str, value: float, clean: float, chance: float, half: float = 0.015
) -> dict[str, Any]:
    return {
        "metric": metric,
        "value": value,
        "low": round(max(value - half, 0), 4),
        "high": round(min(value + half, 1), 4),
        "chance": chance,
        "clean": clean,
        "clean_low": round(max(clean - half, 0), 4),
        "clean_high": round(min(clean + half, 1), 4),
    }


def attack(name: str, family: str, main: dict[str, Any], **keys: Any) -> dict[str, Any]:
    defaults = {
        "n": 2114,
        "adaptive": False,
        "seconds": 4.2,
        "description": "An invented attack.",
        "also": [],
    }
    return {"name": name, "family": family, **main, **defaults, **keys}


def formal() -> dict[str, Any]:
    """Return the usual case: formal, leakage well below clean and above chance."""
    also = [
        figure("Leakage", 0.204, 0.688, 0.118),
        figure("Confidence", 0.187, 0.655, 0.095),
        figure("top-5", 0.412, 0.901, 0.301),
        figure("AUC", 0.702, 0.968, 0.5),
    ]
    attacks = [
        attack(
            "linear",
            "token-inference",
            figure("R-precision", 0.138, 0.601, 0.122),
            seconds=0.8,
            adaptive=True,
            description="Closed-form ridge regression that knows the covariance of the noise.",
            also=also[:2],
        ),
        attack(
            "mlp-adaptive",
            "token-inference",
            figure("R-precision", 0.229, 0.727, 0.122),
            seconds=41.3,
            adaptive=True,
            description="Two layers of 512 units, whitened input, fresh noise every epoch, "
            "stopped on the validation part.",
            also=also,
        ),
        attack(
            "mlc-published",
            "token-inference",
            figure("R-precision", 0.129, 0.215, 0.122),
            seconds=12.5,
            description="Multi-label classifier with the published hyper-parameters.",
        ),
        attack(
            "logistic-probe",
            "probe",
            figure("AUC", 0.612, 0.987, 0.5, 0.02),
            seconds=1.1,
            adaptive=True,
            description="Logistic regression: does the text hold any concept token?",
        ),
        attack(
            "nearest-candidate",
            "candidates",
            figure("top-1", 0.34, 0.998, 0.0005, 0.02),
            seconds=3.0,
            description="Cosine of each protected vector with the clean ones of 2,000 known texts.",
        ),
        attack(
            "wiener",
            "reconstruction",
            figure("cosine", 0.83, 1.0, 0.31, 0.004),
            seconds=0.4,
            description="Best linear estimate of the clean vector from the protected one.",
        ),
    ]
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
    return {
        "schema": "vecveil.audit/1",
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
        "encoder": {"name": "minilm", "fingerprint": "5f2c9e0b71aa43d8", "precision": "float32"},
        "randomness": "secure",
        "texts": {
            "total": 11214,
            "with_concept": 7072,
            "without_concept": 4142,
            "vocabulary": 104,
            "token_instances": 9921,
        },
        "split": {
            "unit": "text group",
            "groups": 6630,
            "train": 4419,
            "validation": 539,
            "test": 2114,
        },
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
        "attacks": attacks,
        "worst": "mlp-adaptive",
        "terms": terms,
        "limits": [
            "Attackers that know other texts of the same author were not tried.",
            "Terms that occur fewer than 15 times are not in the figures.",
            "Text generation from vectors was not tried.",
        ],
        "seed": 0,
        "tier": "quick",
        "seconds": 96.4,
    }


def empirical() -> dict[str, Any]:
    """Return obfuscation: seeded, on vectors alone, no attack adaptive, no gain."""
    record = formal()
    record |= {
        "method": "shuffle",
        "encoder": None,
        "command": None,
        "randomness": "seeded",
        "worst": "linear",
    }
    record["parameters"] = {"epsilon": None, "noise_to_signal": None, "dimension": 384}
    record["guarantee"] |= {
        "kind": "obfuscation",
        "epsilon": None,
        "metric": None,
        "epsilon_euclidean_worst": None,
        "unit": None,
        "neighbours": None,
        "hidden_directions": None,
        "promised": [],
        "statement": "Coordinates are permuted; an attacker who learns the order undoes it.",
    }
    record["attacks"] = [
        attack("linear", "token-inference", figure("R-precision", 0.598, 0.601, 0.122)),
        attack("procrustes", "alignment", figure("top-1", 0.41, 0.99, 0.0005)),
    ]
    return record


def at_chance() -> dict[str, Any]:
    """Return a record whose worst attack has chance within its interval."""
    record = formal()
    record["attacks"] = [
        attack(
            "linear", "token-inference", figure("R-precision", 0.125, 0.601, 0.122), adaptive=True
        )
    ]
    record["worst"] = "linear"
    return record


def without_retrieval() -> dict[str, Any]:
    record = formal()
    del record["utility"]["retrieval"], record["utility"]["neighbours"]
    return record


def many_attacks(number: int = 40) -> dict[str, Any]:
    record = formal()
    families = ("token-inference", "probe", "candidates", "reconstruction", "alignment")
    record["attacks"] = [
        attack(
            f"attack-with-a-rather-long-name-{i:02d}",
            families[i % 5],
            figure("R-precision", round(0.30 - 0.004 * i, 4), 0.7, 0.12),
            adaptive=i % 2 == 0,
        )
        for i in range(number)
    ]
    record["worst"] = record["attacks"][0]["name"]
    return record


def many_terms(number: int = 225, named: bool = True) -> dict[str, Any]:
    record = formal()
    record["terms"] = [
        {
            "term": f"{_TERMS[i % len(_TERMS)]}{'' if i < len(_TERMS) else f' {i}'}"
            if named
            else None,
            "count": 900 // (i + 1) + 15,
            "clean": round(0.9 - 0.003 * i, 4),
            "value": round(0.05 + (i * 37 % 50) / 100, 4),
            "chance": round(0.3 / (i + 1), 4),
        }
        for i in range(number)
    ]
    return record


def hostile() -> dict[str, Any]:
    """Return a record with markup, control and bidirectional characters in every free string."""
    record = many_terms(30)
    evil = HOSTILE + "\u202e\x1b[31m\ud800'\"&amp;"
    for key in ("concept", "method", "command", "created", "vecveil", "tier", "randomness"):
        record[key] = evil
    record["encoder"] = dict.fromkeys(record["encoder"], evil)
    record["parameters"] = {evil: evil, "list": [evil], "object": {evil: evil}}
    record["split"]["unit"] = evil
    for key in ("statement", "unit", "metric", "neighbours"):
        record["guarantee"][key] = evil
    for key in ("promised", "not_promised", "conditional_on"):
        record["guarantee"][key] = [evil]
    record["limits"] = [evil]
    record["utility"] = {
        f"{evil}{i}": each | {"label": evil, "metric": evil}
        for i, each in enumerate(record["utility"].values())
    }
    for i, each in enumerate(record["attacks"]):
        each |= {
            "name": f"{evil}{i}",
            "description": evil,
            "metric": evil,
            "also": [figure(evil, 0.1, 0.2, 0.1)],
        }
    record["worst"] = record["attacks"][1]["name"]
    record["attacks"][3]["family"] = evil
    for each in record["terms"]:
        each["term"] = evil
    return record


VARIANTS: dict[str, Callable[[], dict[str, Any]]] = {
    "formal": formal,
    "empirical": empirical,
    "at-chance": at_chance,
    "without-retrieval": without_retrieval,
    "one-attack": at_chance,
    "many-attacks": many_attacks,
    "many-terms": many_terms,
    "hostile": hostile,
}


def sample_audit(variant: str = "formal") -> dict[str, Any]:
    """Return a fresh record of the named variant."""
    record: dict[str, Any] = json.loads(json.dumps(VARIANTS[variant]()))
    return record
