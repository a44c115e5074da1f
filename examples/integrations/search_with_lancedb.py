"""LanceDB: a table of clean vectors, and one of protected vectors.

python examples/integrations/search_with_lancedb.py BEIR_FOLDER PROTECTOR_FILE
"""

import tempfile

import lancedb
from collection import read_collection
from lancedb.embeddings import get_registry

import vecveil
import vecveil.integrations.lancedb  # registers "vecveil"

collection, protector = read_collection()
database = lancedb.connect(tempfile.mkdtemp())
ids, texts = list(collection.documents), list(collection.documents.values())
encoder = vecveil.load(protector).loaded_encoder()
function = get_registry().get("vecveil").create(protector=protector)


def rows(vectors: list) -> list[dict]:
    return [{"id": one, "vector": vector} for one, vector in zip(ids, vectors, strict=True)]


clean = database.create_table("clean", rows(list(encoder.encode(texts))))
protected = database.create_table("protected", rows(function.generate_embeddings(texts)))


def before(text: str) -> list[str]:
    found = clean.search(encoder.encode([text])[0]).distance_type("cosine").limit(10)
    return [row["id"] for row in found.to_list()]


def after(text: str) -> list[str]:
    vector = function.compute_query_embeddings(text)[0]
    return [r["id"] for r in protected.search(vector).distance_type("cosine").limit(10).to_list()]


print(f"nDCG@10 clean {collection.ndcg(before):.3f}, protected {collection.ndcg(after):.3f}")
