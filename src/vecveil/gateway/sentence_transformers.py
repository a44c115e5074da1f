"""sentence-transformers: a final module that protects a model's vectors and is saved with it.

    model = SentenceTransformer("all-MiniLM-L6-v2")
    protect_model(model, "drug.vecveil")
    model.save("protected-model")
    SentenceTransformer("protected-model", trust_remote_code=True)

Without ``trust_remote_code=True`` the library imports no module class of other packages.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from vecveil.errors import IncompatibleError, InvalidInputError, MissingDependencyError
from vecveil.privacy.protector.policy import (
    PolicyOptions,
    ReleasePolicy,
    WrappedEmbedder,
    open_policy,
    policy_arguments,
    policy_config,
    with_policy,
)

try:
    import torch
    from sentence_transformers.util import load_file_path

    try:
        from sentence_transformers.base.modules import Module as _Module
    except ImportError:  # before version 6
        from sentence_transformers.models import Module as _Module  # type: ignore[no-redef, unused-ignore]
except ImportError:
    raise MissingDependencyError("A module of a model", "sentence-transformers", "sentence-transformers") from None

if TYPE_CHECKING:
    from vecveil.privacy.protector import Protector

__all__ = ["ProtectionModule", "protect_model"]

_Base: Any = _Module  # the library's signatures differ between its versions
_OWNER = "ProtectionModule"
_CONFIG = "config.json"
_FILE = "protector.vecveil"
_LOADING_OPTIONS = ("token", "cache_folder", "revision", "local_files_only")


def protect_model(
    model: Any, protector: Protector | ReleasePolicy | str | os.PathLike[str], **options: Any
) -> ProtectionModule:
    """Verify a ``SentenceTransformer`` with a dozen fixed sentences, append a `ProtectionModule` and return it.

    ``options`` are keyword arguments of the module. Raises IncompatibleError if the model is not that of the fit.
    """
    module = ProtectionModule(protector, **options)
    module.on_model_ready(model)
    model.append(module)
    return module


class ProtectionModule(_Base):  # type: ignore[misc, unused-ignore]
    """Final module of a SentenceTransformer that outputs only a protected ``sentence_embedding``.

    ``encode`` and ``encode_document`` protect texts as documents, ``encode_query`` as queries. The module drops token
    embeddings and token ids. It follows all modules of the fitted model, such as ``Normalize``.

    Args:
        protector: protector, path of its file, or a `ReleasePolicy`; not of a text-level method.
        policy: keywords of `PolicyOptions`; item ids are the token ids of the texts. A saved model contains the names
            of key and ledger, and does not load without them.
    """

    forward_kwargs = {"task"}  # noqa: RUF012 - the library's name and type
    save_in_root = False

    @with_policy
    def __init__(
        self, protector: Protector | ReleasePolicy | str | os.PathLike[str], **policy: Unpack[PolicyOptions]
    ) -> None:
        super().__init__()
        self._named = policy_arguments(protector, **policy)
        del self._named["protector"]  # `save` writes the protector to its own file
        self._policy = open_policy(protector, **policy)
        if self._policy.rewrites_texts:
            said = "The protector rewrites texts, and a module of a model gets vectors. Call protector.encode(texts)."
            raise InvalidInputError(said, param="protector")

    @property
    def policy(self) -> ReleasePolicy:
        """Release policy."""
        return self._policy

    def extra_repr(self) -> str:
        return f"{self._policy.protector.method!r}, query_noise={self._policy.query_noise:g}"

    def get_embedding_dimension(self) -> int:
        """Return the dimension of the released vectors."""
        return self._policy.protector.released_dimension

    get_sentence_embedding_dimension = get_embedding_dimension

    def on_model_ready(self, model: Any) -> None:
        """Verify that the preceding modules are the protector's encoder; called by the library."""
        # The module is not appended yet, or it is the last one.
        before = list(takewhile(lambda module: module is not self, model.children()))
        if any(isinstance(module, ProtectionModule) for module in before):
            raise InvalidInputError("The model has a ProtectionModule already.", param="model")
        # MTEB files results under the model's name: with the model's name it would show results of clean vectors.
        policy = self._policy
        named = (policy.protector.fingerprint, float(policy.query_noise))
        digest = hashlib.sha256(repr(named).encode()).hexdigest()[:16]
        model.model_card_data.model_name = f"vecveil/{policy.protector.method}-{digest}"
        wrapped = WrappedEmbedder(policy, owner=_OWNER)
        if not (sentences := wrapped.probe()):
            return
        model.eval()  # dropout would change the vectors of the probe
        with torch.inference_mode():
            features = {
                name: value.to(model.device) if isinstance(value, torch.Tensor) else value
                for name, value in model.preprocess(sentences).items()
            }
            for module in before:
                features = module(features)
        wrapped.compare(self._clean(features))

    def _clean(self, features: dict[str, Any]) -> torch.Tensor:
        clean = features.get("sentence_embedding")
        if not isinstance(clean, torch.Tensor):
            said = "There is no sentence_embedding. Append the module after the pooling."
            raise InvalidInputError(said, param="features")
        return clean

    def forward(self, features: dict[str, Any], task: str | None = None) -> dict[str, Any]:
        """Return the protected ``sentence_embedding``, released as a query for the task ``query``."""
        clean = self._clean(features)
        # The release detaches from torch's graph: training would run and change nothing.
        if self.training and clean.requires_grad:
            said = "No gradient passes the protection. Train the model first, then protect it."
            raise InvalidInputError(said, param="model")
        X = clean.detach().to("cpu", torch.float32).numpy()
        # Only keyed noise and ledgers need item ids; token ids are all that is left of the texts here.
        named = self._policy.key is not None or self._policy.ledger is not None
        texts = _token_names(features, len(X)) if named else None
        release = self._policy.queries if task == "query" else self._policy.documents
        released = release(np.ascontiguousarray(X), texts=texts)
        given = torch.from_numpy(released).to(clean.device, clean.dtype)
        # A new dictionary: token embeddings and token ids in `features` would reveal the text.
        return {"sentence_embedding": given}

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Save the protector and the names of key and ledger in ``output_path``; raise if these are objects."""
        config = policy_config(None, owner=_OWNER, **self._named)
        folder = Path(output_path)
        self._policy.protector.save(folder / _FILE)
        (folder / _CONFIG).write_text(json.dumps(config, indent=2), "utf-8")

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any) -> ProtectionModule:
        """Load the module of a saved model; called by the library."""
        options = {name: kwargs[name] for name in _LOADING_OPTIONS if name in kwargs}
        files = {}
        for name in (_CONFIG, _FILE):
            path = load_file_path(model_name_or_path, filename=name, subfolder=subfolder, **options)
            if path is None:
                raise IncompatibleError(f"The saved model has no {name} in its folder.", param="model")
            files[name] = path
        config = json.loads(Path(files[_CONFIG]).read_text("utf-8"))
        return cls(files[_FILE], **config)

    def __getstate__(self) -> dict[str, Any]:
        # Keys in memory refuse to be pickled; the loaded encoder is not part of the module.
        state = {**self.__dict__, "_protector": replace(self._policy.protector, encoder=None)}
        del state["_policy"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        protector = state.pop("_protector")
        super().__setstate__(state)
        self._policy = open_policy(protector, **self._named)


def _token_names(features: dict[str, Any], rows: int) -> list[str]:
    """Return an item id for each text: its token ids."""
    # Without padding, which depends on the longest text of the batch.
    ids: Any = features.get("input_ids")
    mask: Any = features.get("attention_mask")
    tensors = isinstance(ids, torch.Tensor) and isinstance(mask, torch.Tensor)
    if not tensors or ids.ndim != 2 or len(ids) != rows or ids.shape != mask.shape:
        raise InvalidInputError("A key or ledger needs a model that returns token ids.", param="model")
    return [" ".join(map(str, row[on.bool()].tolist())) for row, on in zip(ids.cpu(), mask.cpu(), strict=True)]
