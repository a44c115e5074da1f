"""Ray Data: documents protected by workers, and the same search over clean and over protected vectors.

python examples/integrations/search_with_ray.py BEIR_FOLDER PROTECTOR_FILE
"""

import numpy as np
import ray.data
from collection import read_collection

import vecveil
from vecveil.gateway.ray import protect_dataset
from vecveil.privacy.protector import open_policy

collection, protector = read_collection()
encoder = vecveil.load_encoder("minilm")
names, texts = map(list, zip(*collection.documents.items(), strict=True))
documents = encoder.encode(texts, show_progress=False)

rows = [{"id": name, "embedding": row} for name, row in zip(names, documents, strict=True)]
released = protect_dataset(ray.data.from_items(rows), protector).take_all()  # once: a release
by_name = {row["id"]: row["embedding"] for row in released}
store = np.stack([by_name[name] for name in names])


def ndcg(vectors, of_query) -> float:
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def search(text: str) -> list[str]:
        asked = of_query(encoder.encode([text], show_progress=False))
        return [names[i] for i in np.argsort(-(unit @ asked[0]))[:10]]

    return collection.ndcg(search)


clean = ndcg(documents, lambda row: row)
protected = ndcg(store, open_policy(protector).queries)
print(f"nDCG@10 clean {clean:.3f}, protected {protected:.3f}")
