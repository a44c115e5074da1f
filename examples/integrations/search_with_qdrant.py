"""Qdrant: a collection of clean vectors, and one of protected vectors.

python examples/integrations/search_with_qdrant.py BEIR_FOLDER PROTECTOR_FILE
"""

from collection import read_collection
from qdrant_client import QdrantClient, models

import vecveil
from vecveil.integrations.qdrant import ProtectedQdrant

collection, protector = read_collection()
client = QdrantClient(":memory:")
ids, texts = list(collection.documents), list(collection.documents.values())

encoder = vecveil.load_encoder("minilm")
cosine = models.VectorParams(size=384, distance=models.Distance.COSINE)
client.create_collection("clean", vectors_config=cosine)
client.upload_collection("clean", encoder.encode(texts), ids=range(len(ids)))


def before(text: str) -> list[str]:
    found = client.query_points("clean", encoder.encode([text])[0], limit=10)
    return [ids[int(point.id)] for point in found.points]


qdrant = ProtectedQdrant(client, protector)  # the one line that changes
qdrant.create_collection("protected")
qdrant.add("protected", ids, texts)


def after(text: str) -> list[str]:
    return [point.id for point in qdrant.query_points("protected", text, limit=10).points]


print(f"nDCG@10 clean {collection.ndcg(before):.3f}, protected {collection.ndcg(after):.3f}")
