"""Made-up entries of the attacks of an audit record; every figure here is invented."""

from __future__ import annotations

from typing import Any

__all__ = ["attack", "clean_of", "every_family", "figure", "settle"]


def figure(metric: str, value: float, clean: float, chance: float, half: float = 0.015) -> dict[str, Any]:
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
        "cost": "",
        "also": [],
    }
    return {"name": name, "family": family, **main, **defaults, **keys}


def _strength(each: dict[str, Any]) -> float:
    ranked = each["value"] if each["family"] == "token-inference" else each["over_chance"]
    ranked = each["value"] if ranked is None else ranked
    return -9.0 if ranked is None else ranked


def settle(record: dict[str, Any]) -> dict[str, Any]:
    """Fill in what follows from the figures: leakage over chance, and the strongest of each family."""
    strongest: dict[str, dict[str, Any]] = {}
    for each in record["attacks"]:
        for key, out in (("value", "over_chance"), ("clean", "clean_over_chance")):
            value, chance = each[key], each["chance"]
            known = value is not None and chance is not None
            each[out] = (value - chance) / (1 - chance) if known else None
        best = strongest.setdefault(each["family"], each)
        if _strength(each) > _strength(best):
            strongest[each["family"]] = each
    record["families"] = [{"family": family, "worst": each["name"]} for family, each in strongest.items()]
    value = strongest.get("token-inference", {}).get("value") or 0.0

    def point(texts: int, share: float) -> dict[str, Any]:
        low, high = max(share - 0.01, 0.0), min(share + 0.01, 1.0)
        return {"texts": texts, "value": share, "low": low, "high": high}

    record["learning_curve"] = [point(texts, value * part) for texts, part in ((1105, 0.8), (2209, 0.9), (4419, 1))]
    record["forecast"] = point(44190, value)
    names = {each["name"] for each in record["attacks"]}
    for entry in record["frameworks"]:
        entry["attacks"] = [name for name in entry["attacks"] if name in names]
    for each in record["anonymity"]["criteria"] if "anonymity" in record else ():
        each["figures"] = [known for known in each["figures"] if known["attack"] in names]
        each["missing"] = None if each["figures"] else "It needs another attack."
    return record


def clean_of(main: dict[str, Any]) -> dict[str, Any]:
    """Return the figure without its clean side."""
    return main | dict.fromkeys(("clean", "clean_low", "clean_high"))


def _token_inference() -> list[dict[str, Any]]:
    also = [
        figure("Leakage", 0.204, 0.688, 0.118),
        figure("Confidence", 0.187, 0.655, 0.095),
        figure("top-5", 0.412, 0.901, 0.301),
        figure("AUC", 0.702, 0.968, 0.5),
    ]
    return [
        attack(
            "linear",
            "token-inference",
            figure("R-precision", 0.138, 0.601, 0.122),
            seconds=0.8,
            adaptive=True,
            description="Closed-form ridge regression that knows the covariance of the noise.",
            cost="one linear system",
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
            cost="half a minute on one core",
            also=also,
        ),
        attack(
            "mlc-published",
            "token-inference",
            figure("R-precision", 0.129, 0.215, 0.122),
            seconds=12.5,
            description="Multi-label classifier with the published hyper-parameters.",
        ),
    ]


def _averaging(name: str, share: float) -> dict[str, Any]:
    return attack(
        name,
        "averaging",
        figure("R-precision", share, 0.727, 0.122),
        adaptive=True,
        description="The mean of several releases of each text, then token inference.",
        cost="releases of the same texts",
        also=[figure("Leakage", share - 0.02, 0.688, 0.118)],
    )


def _alignment(name: str, shares: tuple[float, ...]) -> dict[str, Any]:
    *fewer, most = shares
    return attack(
        name,
        "alignment",
        figure("top-1 with 1000 pairs", most, 0.99, 0.0005, 0.02),
        description="A map that fits known pairs best, then nearest neighbours.",
        cost="known pairs of text and released vector",
        also=[
            figure("MRR", most + 0.07, 0.995, 0.004, 0.02),
            *(
                figure(f"top-1 with {count} pairs", share, 0.99, 0.0005, 0.02)
                for count, share in zip((10, 50, 200), fewer, strict=True)
            ),
        ],
    )


def every_family() -> list[dict[str, Any]]:
    """Return attacks of every family, token inference first."""
    return [
        *_token_inference(),
        attack(
            "logistic-probe",
            "probe",
            figure("AUC", 0.612, 0.987, 0.5, 0.02),
            seconds=1.1,
            adaptive=True,
            description="Logistic regression: does the text hold any concept token?",
            cost="one second",
            also=[
                figure("advantage", 0.171, 0.912, 0.0),
                figure("TPR at 1 % FPR", 0.042, 0.871, 0.01, 0.012),
                figure("TPR at 0.1 % FPR", 0.009, 0.702, 0.001, 0.007),
            ],
        ),
        attack(
            "nearest-candidate",
            "candidates",
            figure("top-1 of 2,000", 0.34, 0.998, 0.0005, 0.02),
            seconds=3.0,
            description="Cosine of each protected vector with the clean ones of 2,000 known texts.",
            also=[figure("MRR", 0.402, 0.999, 0.0041, 0.02)],
        ),
        attack(
            "substitution-mahalanobis",
            "candidates",
            figure("top-1 of 10", 0.781, 1.0, 0.1, 0.02),
            description="Ten variants of a known sentence; the likelihood under the known noise.",
        ),
        *(_averaging(f"averaging-{k}", v) for k, v in ((1, 0.222), (4, 0.301), (16, 0.422))),
        *(_averaging(f"averaging-{k}-keyed", 0.222) for k in (1, 4, 16)),
        _alignment("alignment-permutation", (0.001, 0.002, 0.002, 0.003)),
        _alignment("alignment-procrustes", (0.002, 0.031, 0.162, 0.338)),
        _alignment("alignment-ridge", (0.004, 0.028, 0.141, 0.302)),
        attack(
            "geia-small",
            "reconstruction",
            figure("token F1", 0.183, 0.331, 0.162, 0.02),
            seconds=310.0,
            n=500,
            description="A decoder of four layers, trained from scratch.",
            cost="five minutes",
            also=[
                figure("BLEU", 0.012, 0.154, 0.009, 0.006),
                figure("ROUGE-L", 0.171, 0.318, 0.155, 0.02),
                figure("exact match", 0.0, 0.012, 0.0, 0.004),
                figure("cosine", 0.312, 0.583, 0.27, 0.02),
                figure("Leakage", 0.041, 0.186, 0.035, 0.02),
            ],
        ),
        attack(
            "unlisted-linear",
            "held-out-terms",
            figure("R-precision", 0.581, 0.734, 0.199),
            adaptive=True,
            description="Half of the terms protected, the other half attacked.",
            also=[figure("Leakage", 0.504, 0.688, 0.19), figure("R-precision of listed words", 0.211, 0.733, 0.077)],
        ),
        attack(
            "unlisted-kernel",
            "held-out-terms",
            figure("R-precision", 0.632, 0.764, 0.199),
            adaptive=True,
            description="Half of the terms protected, the other half attacked.",
            also=[figure("Leakage", 0.604, 0.688, 0.19), figure("R-precision of listed words", 0.221, 0.734, 0.077)],
        ),
    ]
