"""LlamaIndex: the same index with an embedding as it is, and with a protector around it.

python examples/integrations/search_with_llama_index.py BEIR_FOLDER PROTECTOR_FILE
"""

from collection import read_collection
from llama_index.core import VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import TextNode

import vecveil
from vecveil.gateway.llama_index import ProtectedEmbedding

encoder = vecveil.load_encoder("minilm")


class MiniLM(BaseEmbedding):
    """Stands for the embedding that you use: OpenAIEmbedding, HuggingFaceEmbedding ..."""

    def _get_text_embedding(self, text: str) -> list[float]:
        return encoder.encode([text], show_progress=False)[0].tolist()

    _get_query_embedding = _get_text_embedding

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


def ndcg(embedding: BaseEmbedding) -> float:
    nodes = [TextNode(text=text, id_=name) for name, text in collection.documents.items()]
    index = VectorStoreIndex(nodes, embed_model=embedding)
    retriever = index.as_retriever(similarity_top_k=10)
    return collection.ndcg(lambda text: [hit.node.node_id for hit in retriever.retrieve(text)])


collection, protector = read_collection()
clean = ndcg(MiniLM())
protected = ndcg(ProtectedEmbedding(protector, MiniLM(), text_stored=False))
print(f"nDCG@10 clean {clean:.3f}, protected {protected:.3f}")
