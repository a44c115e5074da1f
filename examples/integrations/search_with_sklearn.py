"""scikit-learn: the same nearest-neighbour search over clean vectors and behind a transformer.

python examples/integrations/search_with_sklearn.py BEIR_FOLDER PROTECTOR_FILE
"""

from collection import read_collection
from sklearn.neighbors import NearestNeighbors

import vecveil
from vecveil.gateway.sklearn import ProtectorTransformer

collection, protector = read_collection()
encoder = vecveil.load_encoder("minilm")
names = list(collection.documents)
documents = encoder.encode(list(collection.documents.values()), show_progress=False)
transformer = ProtectorTransformer(protector).fit(documents)


def ndcg(rows, of_query) -> float:
    index = NearestNeighbors(n_neighbors=10, metric="cosine").fit(rows)

    def search(text: str) -> list[str]:
        asked = of_query(encoder.encode([text], show_progress=False))
        return [names[i] for i in index.kneighbors(asked, return_distance=False)[0]]

    return collection.ndcg(search)


clean = ndcg(documents, lambda row: row)
protected = ndcg(transformer.transform(documents), transformer.transform_queries)
print(f"nDCG@10 clean {clean:.3f}, protected {protected:.3f}")
