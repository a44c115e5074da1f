"""Haystack: the same pipelines without and with a protector. Arguments: BEIR_FOLDER PROTECTOR_FILE."""

from collection import read_collection
from haystack import Document, Pipeline
from haystack.components.embedders import MockDocumentEmbedder, MockTextEmbedder
from haystack.components.retrievers.in_memory import InMemoryEmbeddingRetriever
from haystack.components.writers import DocumentWriter
from haystack.document_stores.in_memory import InMemoryDocumentStore

import vecveil
from vecveil.gateway.haystack import DocumentProtector, QueryProtector

encoder = vecveil.load_encoder("minilm")
minilm = {"embedding_fn": lambda text: encoder.encode([text], show_progress=False)[0].tolist()}


def chain(output: str, *components: object) -> Pipeline:
    pipeline = Pipeline()
    for i, component in enumerate(components):
        pipeline.add_component(str(i), component)
        if i:
            pipeline.connect(f"{i - 1}.{output}", str(i))
    return pipeline


def ndcg(documents: list, queries: list) -> float:
    store = InMemoryDocumentStore(embedding_similarity_function="cosine")
    ingest = chain("documents", MockDocumentEmbedder(**minilm), *documents, DocumentWriter(store))
    ingest.run({"0": {"documents": [Document(id=i, content=t) for i, t in data.documents.items()]}})
    ask = chain("embedding", MockTextEmbedder(**minilm), *queries, InMemoryEmbeddingRetriever(store))
    last = str(len(queries) + 1)
    return data.ndcg(lambda q: [d.id for d in ask.run({"0": {"text": q}})[last]["documents"]])


data, protector = read_collection()
protected = ndcg([DocumentProtector(protector, keep_content=False)], [QueryProtector(protector)])
print(f"nDCG@10 clean {ndcg([], []):.3f}, protected {protected:.3f}")
