"""Spark: documents protected by workers, and the same search over clean and over protected vectors.

python examples/integrations/search_with_spark.py BEIR_FOLDER PROTECTOR_FILE
"""

import os
import sys

import numpy as np
from collection import read_collection
from pyspark.sql import SparkSession

import vecveil
from vecveil.gateway.spark import protect_dataframe
from vecveil.privacy.protector import open_policy

collection, protector = read_collection()
encoder = vecveil.load_encoder("minilm")
names, texts = map(list, zip(*collection.documents.items(), strict=True))
documents = encoder.encode(texts, show_progress=False)
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers need vecveil too
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
rows = list(zip(names, documents.tolist(), strict=True))
df = spark.createDataFrame(rows, "id string, embedding array<float>")
released = {row.id: row.embedding for row in protect_dataframe(df, protector).collect()}


def ndcg(vectors, of_query) -> float:
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def search(text: str) -> list[str]:
        asked = of_query(encoder.encode([text], show_progress=False))
        return [names[i] for i in np.argsort(-(unit @ asked[0]))[:10]]

    return collection.ndcg(search)


clean = ndcg(documents, lambda row: row)
protected = ndcg(np.array([released[name] for name in names]), open_policy(protector).queries)
print(f"nDCG@10 clean {clean:.3f}, protected {protected:.3f}")
