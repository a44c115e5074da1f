"""Milvus Lite: a collection of clean vectors, and one of protected vectors.

python examples/integrations/search_with_milvus.py BEIR_FOLDER PROTECTOR_FILE
"""

import os
import tempfile

from collection import read_collection
from pymilvus import MilvusClient

import vecveil
from vecveil.integrations.milvus import ProtectedMilvus

collection, protector = read_collection()
client = MilvusClient(os.path.join(tempfile.mkdtemp(), "notes.db"))
options = {"id_type": "string", "max_length": 64, "metric_type": "COSINE"}

encoder = vecveil.load_encoder("minilm")
vectors = encoder.encode(list(collection.documents.values())).tolist()
client.create_collection("clean", dimension=384, **options)
rows = [{"id": i, "vector": v} for i, v in zip(collection.documents, vectors, strict=True)]
client.insert("clean", rows)
clean = collection.ndcg(
    lambda text: [hit["id"] for hit in client.search("clean", encoder.encode([text]).tolist())[0]]
)

milvus = ProtectedMilvus(client, protector)
milvus.create_collection("protected", **options)
milvus.insert("protected", [{"id": i, "text": t} for i, t in collection.documents.items()])
protected = collection.ndcg(lambda text: [hit["id"] for hit in milvus.search("protected", text)[0]])
client.close()

print(f"nDCG@10 clean {clean:.3f}, protected {protected:.3f}")
