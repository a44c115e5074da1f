"""Many files of vectors or texts to a folder of protected ones, on one machine or on many.

Inputs are cut into parts of bounded size, each of which becomes one file that is there whole or not at all. A manifest
says which part went where; a run that was stopped goes on with the parts that are missing.

Importing this package loads neither pyarrow nor fsspec; protecting files needs both (extra ``files``).
"""

from vecveil.bulk.job import ArrowProtection, BulkJob
from vecveil.bulk.manifest import MANIFEST, Manifest, verify
from vecveil.bulk.places import Part, plan
from vecveil.bulk.running import protect_files

__all__ = [
    "MANIFEST",
    "ArrowProtection",
    "BulkJob",
    "Manifest",
    "Part",
    "plan",
    "protect_files",
    "verify",
]
