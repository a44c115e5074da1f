"""Protect many files of vectors or texts into one folder, on one machine or on many.

Inputs are cut into parts of bounded size; each becomes one file that exists whole or not at all. A manifest maps parts
to files, and a stopped run continues with the missing parts.

Importing this package loads neither pyarrow nor fsspec; protecting files needs both (extra ``files``).
"""

from vecveil.gateway.bulk.job import ArrowProtection, BulkJob, Unsealing
from vecveil.gateway.bulk.places import Part, plan
from vecveil.gateway.bulk.running import MANIFEST, Manifest, protect_files, verify

__all__ = ["MANIFEST", "ArrowProtection", "BulkJob", "Manifest", "Part", "Unsealing", "plan", "protect_files", "verify"]
