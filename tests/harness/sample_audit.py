"""Made-up audit records in the form of docs/formats.md, for tests of what draws them.

Every figure here is invented; no record came from an audit.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from harness.sample_attacks import attack, clean_of, every_family, figure, settle

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
            },
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
            "attacks": every_family(),
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
                }
            ],
            "seed": 0,
            "tier": "quick",
            "seconds": 96.4,
        }
    )


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
    record["skipped"] = []
    return settle(record)


def at_chance() -> dict[str, Any]:
    """Return a record whose worst attack has chance within its interval."""
    record = formal()
    record["attacks"] = [
        attack(
            "linear", "token-inference", figure("R-precision", 0.125, 0.601, 0.122), adaptive=True
        )
    ]
    record["worst"] = "linear"
    return settle(record)


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
    return settle(record)


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
            "cost": evil,
            "metric": evil,
            "also": [figure(evil, 0.1, 0.2, 0.1)],
        }
    record["worst"] = record["attacks"][1]["name"]
    record["lint"] = [{"code": evil, "message": evil}]
    record["frameworks"] = [
        dict.fromkeys(("framework", "item", "title", "finding"), evil)
        | {"attacks": [record["worst"]]}
    ]
    record["reconstructions"] = [
        {"attack": record["worst"], "original": evil, "clean": evil, "protected": evil}
    ]
    record["skipped"] = [{"attack": evil, "family": "probe", "reason": evil}]
    for each in record["terms"]:
        each["term"] = evil
    return settle(record)


def store() -> dict[str, Any]:
    """Return the audit of a store whose encoder is known: clean vectors stand beside."""
    record = formal()
    record |= dict.fromkeys(("method", "guarantee", "concept_distance", "randomness"))
    record |= {
        "kind": "store",
        "parameters": {"dimension": 384, "released_dimension": 384},
        "utility": {},
        "command": "vecveil audit store.parquet --concept drug.yaml --html store.html",
        "lint": [
            {
                "code": "plaintext-beside-vectors",
                "message": "The column `text` lies beside the vectors: whoever reads the store needs "
                "no attack.",
            },
            {"code": "file-readable", "message": "Everybody on this machine may read the file."},
        ],
    }
    for each in record["attacks"]:
        each["adaptive"] = False
    return settle(record)


def store_without_clean() -> dict[str, Any]:
    """Return the audit of a store whose encoder is unknown: nothing to compare with."""
    record = store()
    record["encoder"], record["lint"] = None, []
    record["attacks"] = [
        clean_of(each) | {"also": [clean_of(other) for other in each["also"]]}
        for each in record["attacks"]
        if each["family"] in ("token-inference", "probe")
    ]
    for term in record["terms"]:
        term["clean"] = None
    return settle(record)


def reconstructions() -> dict[str, Any]:
    """Return a record that holds texts, as it does when the user asked for them."""
    record = formal()
    record["reconstructions"] = [
        {
            "attack": "geia-small",
            "original": f"The patient was given warfarin on day {day} and went home.",
            "clean": f"The patient took warfarin for {day} days." if day % 2 else None,
            "protected": "The woman went to the house after a long time of the day.",
        }
        for day in range(1, 7)
    ]
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
    "store": store,
    "store-without-clean": store_without_clean,
    "reconstructions": reconstructions,
}


def sample_audit(variant: str = "formal") -> dict[str, Any]:
    """Return a fresh record of the named variant."""
    record: dict[str, Any] = json.loads(json.dumps(VARIANTS[variant]()))
    return record
