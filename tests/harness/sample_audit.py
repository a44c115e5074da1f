"""Made-up audit records in the form of docs/formats.md, for tests of what draws them.

Every figure here is invented; no record came from an audit.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from harness.sample_attacks import attack, clean_of, figure, settle
from harness.sample_record import formal

HOSTILE = '</script></style></title><img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'

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


def empirical() -> dict[str, Any]:
    """Return obfuscation: seeded, on vectors alone, no attack adaptive, no gain."""
    record = formal()
    record |= {"method": "shuffle", "encoder": None, "command": None, "randomness": "seeded", "worst": "linear"}
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
        attack("procrustes", "alignment", figure("top-1 with 1000 pairs", 0.41, 0.99, 0.0005)),
    ]
    record["skipped"] = []
    return settle(record)


def at_chance() -> dict[str, Any]:
    """Return a record whose worst attack has chance within its interval."""
    record = formal()
    record["attacks"] = [attack("linear", "token-inference", figure("R-precision", 0.125, 0.601, 0.122), adaptive=True)]
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
            "term": f"{_TERMS[i % len(_TERMS)]}{'' if i < len(_TERMS) else f' {i}'}" if named else None,
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
    record["encoder"] |= dict.fromkeys(("name", "fingerprint", "precision"), evil)
    record["parameters"] = {evil: evil, "list": [evil], "object": {evil: evil}}
    record["split"]["unit"] = evil
    for key in ("statement", "unit", "metric", "neighbours"):
        record["guarantee"][key] = evil
    for key in ("promised", "not_promised", "conditional_on"):
        record["guarantee"][key] = [evil]
    record["limits"] = [evil]
    record["utility"] = {
        f"{evil}{i}": each | {"label": evil, "metric": evil} for i, each in enumerate(record["utility"].values())
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
        dict.fromkeys(("framework", "item", "title", "finding"), evil) | {"attacks": [record["worst"]]}
    ]
    record["reconstructions"] = [{"attack": record["worst"], "original": evil, "clean": evil, "protected": evil}]
    record["skipped"] = [{"attack": evil, "family": "probe", "reason": evil, "code": evil}]
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
                "message": "The column `text` lies beside the vectors: whoever reads the store needs no attack.",
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
    for each in record["anonymity"]["criteria"]:
        each["figures"] = [clean_of(known) for known in each["figures"]]
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


def with_caveats() -> dict[str, Any]:
    """Return a record whose verdict has seven caveats, which is the most that one can have."""
    record = sample_audit() | {"randomness": "seeded"}
    for each in record["attacks"]:
        each["adaptive"] = False
        if each["name"] == record["worst"]:
            each |= {"value": 0.66, "low": 0.61, "high": 0.71, "chance": 0.62}
            each |= {"clean": 0.65, "clean_low": 0.6, "clean_high": 0.7}
    return settle(record)
