"""LangChain: the same store with the embeddings as they are, and with a protector around them.

python examples/integrations/search_with_langchain.py BEIR_FOLDER PROTECTOR_FILE
"""

from collection import read_collection
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore

import vecveil
from vecveil.gateway.langchain import ProtectedEmbeddings


class MiniLM(Embeddings):
    """Stands for the embeddings that you use: OpenAIEmbeddings, HuggingFaceEmbeddings ..."""

    encoder = vecveil.load_encoder("minilm")

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return self.encoder.encode(texts, show_progress=False).tolist()

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


def ndcg(embeddings: Embeddings) -> float:
    store = InMemoryVectorStore(embeddings)
    store.add_texts(list(collection.documents.values()), ids=list(collection.documents))
    return collection.ndcg(lambda text: [doc.id for doc in store.similarity_search(text, k=10)])


collection, protector = read_collection()
clean = ndcg(MiniLM())
protected = ndcg(ProtectedEmbeddings(protector, MiniLM(), text_stored=False))
print(f"nDCG@10 clean {clean:.3f}, protected {protected:.3f}")
