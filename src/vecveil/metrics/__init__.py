"""Measures of what leaks and of what stays useful, each with an interval.

`token_inference` for leakage; `similarity`, `neighbours`, `ranking` and `classification` for
utility; `intervals` for how sure a figure is.
"""

from vecveil.metrics.estimate import Estimate

__all__ = ["Estimate"]
