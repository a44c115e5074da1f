"""pgvector: a table of clean vectors, and one of protected vectors.

python examples/integrations/search_with_pgvector.py BEIR_FOLDER PROTECTOR_FILE
DATABASE_URL names a PostgreSQL with pgvector; without it the package pgserver brings one.
"""

import os
import tempfile

from collection import read_collection
from pgvector.psycopg import register_vector
from psycopg import connect

import vecveil
from vecveil.integrations.pgvector import ProtectedTable

url = os.environ.get("DATABASE_URL")
if url is None:
    import pgserver

    url = pgserver.get_server(tempfile.mkdtemp(), cleanup_mode="delete").get_uri()
collection, protector = read_collection()
ids, texts = list(collection.documents), list(collection.documents.values())
with ProtectedTable(url, "protected", protector) as table:
    table.create()
    table.add(ids, texts)
    protected = collection.ndcg(lambda text: [match.id for match in table.search(text, k=10)])

encoder = vecveil.load_encoder("minilm")
with connect(url) as connection:
    register_vector(connection)
    cursor = connection.cursor()
    cursor.execute("CREATE TEMPORARY TABLE clean (id text, embedding vector(384))")
    rows = zip(ids, encoder.encode(texts), strict=True)
    cursor.executemany("INSERT INTO clean VALUES (%s, %s)", rows)
    nearest = "SELECT id FROM clean ORDER BY embedding <=> %s LIMIT 10"
    clean = collection.ndcg(
        lambda text: [row[0] for row in cursor.execute(nearest, [encoder.encode([text])[0]])]
    )
print(f"nDCG@10 clean {clean:.3f}, protected {protected:.3f}")
