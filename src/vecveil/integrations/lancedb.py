"""LanceDB: a function of its registry, whose tables hold protected vectors.

    function = get_registry().get("vecveil").create(protector="drug.vecveil", key="env:VECVEIL_KEY")

A table keeps what was given to ``create``: names of files and variables, never what is in them. LanceDB stores texts
of the source column beside the vectors.
"""

from __future__ import annotations

from typing import Any

from pydantic import PrivateAttr

from vecveil.errors import MissingDependencyError
from vecveil.integrations.embedders import TextRelease
from vecveil.integrations.opening import open_policy, warn_plaintext
from vecveil.protector.policy import STRONGER, QueryProtection

try:
    from lancedb.embeddings import TextEmbeddingFunction, register
except ImportError:
    raise MissingDependencyError("Protecting LanceDB tables", "lancedb", "lancedb") from None

__all__ = ["ProtectedEmbeddingFunction"]


@register("vecveil")  # type: ignore[no-untyped-call, unused-ignore]
class ProtectedEmbeddingFunction(TextEmbeddingFunction):  # type: ignore[misc, unused-ignore]
    """Protected vectors for LanceDB; queries as the policy says.

    Args:
        protector: its file. Objects are refused: the table keeps the arguments.
        encoder: a name for `vecveil.load_encoder`; None takes the protector's.
        query_protection: ``same``, ``stronger`` or ``map-only``.
        query_noise: times the documents' noise, for ``stronger``.
        key: ``env:NAME`` or the path of a key file.
        ledger: its file.
    """

    protector: str
    encoder: str | None = None
    query_protection: QueryProtection = "same"
    query_noise: float = STRONGER
    key: str | None = None
    ledger: str | None = None
    max_retries: int = 0  # a refusal stays one
    _release: TextRelease = PrivateAttr()
    _warned: bool = PrivateAttr(default=False)

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        policy = open_policy(
            self.protector,
            query_protection=self.query_protection,
            query_noise=self.query_noise,
            key=self.key,
            ledger=self.ledger,
        )
        self._release = TextRelease(policy, self.encoder)

    def ndims(self) -> int:
        """Return the dimension of what is released."""
        return self._release.dimension

    def generate_embeddings(self, texts: Any, *args: Any, **kwargs: Any) -> list[Any]:
        """Return the protected vectors of documents."""
        return list(self._release.documents([str(text) for text in texts]))

    def compute_source_embeddings(self, texts: Any, *args: Any, **kwargs: Any) -> list[Any]:
        """Return the protected vectors of a source column; called by LanceDB, which stores the texts."""
        if not self._warned:
            self._warned = True
            fix = "Write protected vectors to a table without the text."
            warn_plaintext("the source column of a LanceDB table", fix, stacklevel=4)
        return self.generate_embeddings(self.sanitize_input(texts))

    def compute_query_embeddings(self, query: Any, *args: Any, **kwargs: Any) -> list[Any]:
        """Return the vectors of queries."""
        return list(self._release.queries([str(one) for one in self.sanitize_input(query)]))
