"""A vector database: a collection of clean vectors, and a `ProtectedCollection`.

python examples/integrations/search_with_databases.py BEIR_FOLDER PROTECTOR_FILE [KIND]

KIND is chroma, lancedb, qdrant, milvus or sqlite-vec (the default), in a temporary folder; pgvector needs DATABASE_URL.
"""

import os
import sys
import tempfile

from collection import read_collection

import vecveil
from vecveil.stores import Batch, open_store

kind = sys.argv.pop(3) if len(sys.argv) == 4 else "sqlite-vec"
file = {"milvus": "rows.db", "sqlite-vec": "rows.db"}.get(kind, "rows")
where = os.environ["DATABASE_URL"] if kind == "pgvector" else f"{tempfile.mkdtemp()}/{file}"
collection, protector = read_collection()
ids, texts = list(collection.documents), list(collection.documents.values())

encoder = vecveil.load(protector).loaded_encoder()
with open_store(f"{kind}:{where}#clean") as store:
    store.create(encoder.dimension, metric="cosine")
    store.write(Batch(tuple(ids), encoder.encode(texts), ({},) * len(ids)))
    clean = collection.ndcg(lambda text: [match.id for match in store.search(encoder.encode([text])[0], 10)])

notes = vecveil.ProtectedCollection(f"{kind}:{where}#protected", protector)
notes.add(texts, ids=ids)
protected = collection.ndcg(lambda text: notes.search(text, top=10).ids)
notes.database.close()
print(f"nDCG@10 clean {clean:.3f}, protected {protected:.3f}")
