"""LiteLLM: the same asynchronous calls without and with the callback. Arguments: BEIR_FOLDER PROTECTOR_FILE."""

import asyncio

import collection
import litellm
import numpy as np

import vecveil
from vecveil.integrations.litellm import ProtectEmbeddings

encoder = vecveil.load_encoder("minilm")


class MiniLM(litellm.CustomLLM):
    """Stands for the provider that you use: openai, azure, bedrock ..."""

    async def aembedding(self, model, input, model_response, **_):
        rows = enumerate(encoder.encode(input, show_progress=False).tolist())
        model_response.data = [{"object": "embedding", "index": i, "embedding": x} for i, x in rows]
        return model_response


async def embed(texts: list[str]) -> np.ndarray:
    answer = await litellm.aembedding(model="local/minilm", input=texts)
    X = np.array([item["embedding"] for item in answer.data])
    return X / np.linalg.norm(X, axis=1, keepdims=True)


async def ndcg() -> float:
    ids, held = list(data.documents), await embed(list(data.documents.values()))
    asked = dict(zip(data.queries.values(), await embed(list(data.queries.values())), strict=True))
    return data.ndcg(lambda text: [ids[i] for i in np.argsort(-held @ asked[text])[:10]])


data, protector = collection.read_collection()
litellm.custom_provider_map = [{"provider": "local", "custom_handler": MiniLM()}]
clean = asyncio.run(ndcg())
litellm.callbacks = [ProtectEmbeddings(protector)]
print(f"nDCG@10 clean {clean:.3f}, protected {asyncio.run(ndcg()):.3f}")
