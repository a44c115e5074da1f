"""Table I of the TextCrafter paper, as printed, in per cent.

The rows are named as ours: the paper's TextCrafter is the literal one, whose direction v is as drawn. Another encoder,
another attack (Vec2Text), other samples of the sets: no figure here can be compared with ours by itself. The
parameters of the rows (σ, ε, r) are not legible in the source that was read.
"""

from __future__ import annotations

__all__ = ["COLUMNS", "PUBLISHED", "ROWS"]

COLUMNS = ("bleu", "token_f1", "exact_match", "rouge_l", "macro_f1", "accuracy")

ROWS = {
    "none": "none",
    "shuffle": "shuffling",
    "gaussian": "Gaussian",
    "ldp-gaussian": "LDP",
    "textcrafter-untrained": "TextCrafter",
}
"""Our names of the rows, and as printed."""

PUBLISHED: dict[str, dict[str, tuple[float, ...]]] = {
    "phrasebank": {
        "none": (83.54, 90.42, 68.00, 92.62, 93.46, 95.50),
        "shuffle": (1.25, 7.47, 0.00, 8.10, 11.22, 12.00),
        "gaussian": (1.16, 9.76, 0.00, 10.42, 35.52, 65.00),
        "ldp-gaussian": (3.70, 4.56, 0.00, 5.07, 27.28, 63.00),
        "textcrafter-untrained": (2.70, 9.14, 0.00, 13.67, 68.0, 76.00),
    },
    "ade": {
        "none": (91.08, 95.22, 84.00, 95.99, 96.93, 98.00),
        "shuffle": (0.86, 5.22, 0.00, 5.25, 44.40, 51.00),
        "gaussian": (1.01, 8.39, 0.00, 8.27, 46.79, 63.00),
        "ldp-gaussian": (9.10, 4.46, 0.00, 4.42, 44.44, 62.00),
        "textcrafter-untrained": (2.10, 9.75, 0.01, 11.50, 50.87, 75.00),
    },
    "sst2": {
        "none": (76.10, 91.88, 83.00, 95.50, 98.49, 98.50),
        "shuffle": (1.20, 7.85, 0.00, 7.46, 22.20, 31.00),
        "gaussian": (1.54, 12.65, 0.01, 14.36, 72.97, 73.00),
        "ldp-gaussian": (7.20, 4.09, 0.00, 3.55, 48.00, 52.50),
        "textcrafter-untrained": (1.24, 16.49, 0.00, 11.68, 68.00, 79.00),
    },
    "agnews": {
        "none": (59.07, 82.44, 32.00, 77.99, 85.47, 86.00),
        "shuffle": (1.69, 6.45, 0.00, 7.91, 32.00, 44.00),
        "gaussian": (0.97, 13.37, 0.00, 9.38, 49.68, 63.50),
        "ldp-gaussian": (5.75, 20.54, 0.00, 6.69, 27.50, 59.50),
        "textcrafter-untrained": (1.88, 16.63, 0.00, 7.43, 65.10, 74.50),
    },
}
