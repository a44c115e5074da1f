"""sqlite-vec: a table of clean vectors, and one of protected vectors.

python examples/integrations/search_with_sqlite_vec.py BEIR_FOLDER PROTECTOR_FILE
"""

import sqlite3

import sqlite_vec
from collection import read_collection

import vecveil
from vecveil.integrations.sqlite_vec import ProtectedTable

if not hasattr(sqlite3.Connection, "enable_load_extension"):
    import pysqlite3 as sqlite3  # some builds of Python cannot load extensions

connection = sqlite3.connect(":memory:")
connection.enable_load_extension(True)
sqlite_vec.load(connection)
collection, protector = read_collection()
ids, texts = list(collection.documents), list(collection.documents.values())

encoder = vecveil.load_encoder("minilm")
columns = "id text primary key, embedding float[384] distance_metric=cosine"
connection.execute(f"CREATE VIRTUAL TABLE clean USING vec0({columns})")
rows = [(one, vector.tobytes()) for one, vector in zip(ids, encoder.encode(texts), strict=True)]
connection.executemany("INSERT INTO clean VALUES (?, ?)", rows)
nearest = "SELECT id FROM clean WHERE embedding MATCH ? AND k = 10 ORDER BY distance"
clean = collection.ndcg(
    lambda text: [r[0] for r in connection.execute(nearest, [encoder.encode([text])[0].tobytes()])]
)

table = ProtectedTable(connection, "protected", protector)
table.create()
table.add(ids, texts)
protected = collection.ndcg(lambda text: [match.id for match in table.search(text, k=10)])
print(f"nDCG@10 clean {clean:.3f}, protected {protected:.3f}")
