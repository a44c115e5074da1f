"""Key providers: AWS KMS, Vault and OpenBao, Google Cloud KMS, Azure Key Vault, and PKCS#11 modules.

``SERVICE:NAME:STORE`` names a key of a service and the file of the data keys that it wraps. Each class calls the
service's own client, which finds the credentials; the service never returns its key.
"""

from __future__ import annotations

import base64
import os
import re
import secrets
import threading
import urllib.parse
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, final

from cryptography.exceptions import InvalidTag

from vecveil.errors import InvalidInputError, KeyFileError, optional_import
from vecveil.index.keystore import KEY_BYTES, NONCE_BYTES, aead, framed, unframed
from vecveil.keys import others_can_open


class KeyService(ABC):
    """A `KeyProvider` whose key a service holds.

    Args:
        name: name of the key.
        client: client of the service's library; None makes a client with credentials from the environment.
    """

    scheme: ClassVar[str]
    title: ClassVar[str]
    form: ClassVar[str]
    pattern: ClassVar[str]
    remedy: ClassVar[str]
    _client: Any

    def __init__(self, name: str, client: Any = None) -> None:
        if not re.fullmatch(self.pattern, name):
            said = (
                f"A key of {self.title} is {self.scheme}:{self.form}:STORE, where STORE is the file of the data keys."
            )
            raise InvalidInputError(said, param="key")
        self.name = name
        if client is not None:
            self._client = client

    @final
    def wrap(self, key: bytes, context: bytes) -> bytes:
        with self._failures("wrap"):
            return self._wrap(key, context)

    @final
    def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        with self._failures("unwrap"):
            return self._unwrap(wrapped, context)

    @abstractmethod
    def _wrap(self, key: bytes, context: bytes) -> bytes: ...

    @abstractmethod
    def _unwrap(self, wrapped: bytes, context: bytes) -> bytes: ...

    def _reason(self, error: Exception) -> str:
        """Return the service's code for ``error``; its sentences may quote what was sent."""
        return type(error).__name__

    @contextmanager
    def _failures(self, operation: str) -> Iterator[None]:
        try:
            yield
        except (InvalidTag, KeyFileError, ImportError):
            raise
        except Exception as error:
            raise KeyFileError(
                f"{self.title} did not {operation} a data key with {self.name}: {self._reason(error)}. {self.remedy}",
                code="E-SEAL-PROVIDER",
                param="key",
            ) from error

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class AwsKms(KeyService):
    """A symmetric key of AWS KMS: its ARN, id, or ``alias/NAME``. The context is the encryption context ``vecveil``."""

    scheme, title, form = "awskms", "AWS KMS", "ARN (or alias/NAME, or a key's id)"
    pattern = r"(arn:aws[\w-]*:kms:[\w-]+:\d+:(key|alias)/[\w/-]+)|alias/[\w/-]+|(mrk-)?[0-9a-f-]{32,36}"
    remedy = (
        "Check the credentials and the region of boto3, that the key is enabled, and that it grants kms:Encrypt and "
        "kms:Decrypt."
    )

    @cached_property
    def _client(self) -> Any:
        with optional_import(self.title, "boto3", "aws"):
            import boto3
        region = self.name.split(":")[3] if self.name.startswith("arn:") else None
        return boto3.client("kms", region_name=region)

    def _reason(self, error: Exception) -> str:
        return str(getattr(error, "response", {}).get("Error", {}).get("Code", type(error).__name__))

    def _wrap(self, key: bytes, context: bytes) -> bytes:
        reply = self._client.encrypt(KeyId=self.name, Plaintext=key, EncryptionContext=_text(context))
        return bytes(reply["CiphertextBlob"])

    def _unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        # Without KeyId, KMS would also unwrap what another account wrapped with another key.
        reply = self._client.decrypt(KeyId=self.name, CiphertextBlob=wrapped, EncryptionContext=_text(context))
        return bytes(reply["Plaintext"])


def _text(context: bytes) -> dict[str, str]:
    """Return the context of a data key, readable in CloudTrail and key policies if it is ASCII, else in base64."""
    return {"vecveil": context.decode() if context.isascii() else base64.b64encode(context).decode()}


class VaultTransit(KeyService):
    """An AES-GCM or ChaCha20 key of the transit engine of Vault or OpenBao. The context is associated data."""

    scheme, title, form, pattern = "vault", "Vault", "MOUNT/KEY", r"[\w/.-]+/[\w.-]+"
    remedy = (
        "Check VAULT_ADDR and VAULT_TOKEN, that the server is unsealed, and that the token's policy allows to update "
        "encrypt/ and decrypt/ of the key."
    )

    @cached_property
    def _client(self) -> Any:
        with optional_import(self.title, "hvac", "vault"):
            import hvac
        return hvac.Client(namespace=os.environ.get("VAULT_NAMESPACE"))

    def _call(self, operation: str, content: dict[str, bytes], context: bytes) -> dict[str, str]:
        mount, _, key = self.name.rpartition("/")
        given = {name: value.decode() for name, value in content.items()}
        method = getattr(self._client.secrets.transit, operation)
        reply = method(key, **given, associated_data=base64.b64encode(context).decode(), mount_point=mount)
        answer: dict[str, str] = reply["data"]
        return answer

    def _wrap(self, key: bytes, context: bytes) -> bytes:
        return self._call("encrypt_data", {"plaintext": base64.b64encode(key)}, context)["ciphertext"].encode()

    def _unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        return base64.b64decode(self._call("decrypt_data", {"ciphertext": wrapped}, context)["plaintext"])


class GoogleKms(KeyService):
    """A symmetric key of Google Cloud KMS. The context is additional authenticated data."""

    scheme, title = "gcpkms", "Google Cloud KMS"
    form = "projects/PROJECT/locations/LOCATION/keyRings/RING/cryptoKeys/KEY"
    pattern = r"projects/[\w:.-]+/locations/[\w-]+/keyRings/[\w-]+/cryptoKeys/[\w-]+"
    remedy = (
        "Check the application default credentials, that the key's primary version is enabled, and that they have the "
        "role cloudkms.cryptoKeyEncrypterDecrypter."
    )

    @cached_property
    def _client(self) -> Any:
        with optional_import(self.title, "google-cloud-kms", "gcp"):
            from google.cloud import kms
        return kms.KeyManagementServiceClient()

    def _wrap(self, key: bytes, context: bytes) -> bytes:
        request = {"name": self.name, "plaintext": key, "additional_authenticated_data": context}
        return bytes(self._client.encrypt(request=request).ciphertext)

    def _unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        request = {"name": self.name, "ciphertext": wrapped, "additional_authenticated_data": context}
        return bytes(self._client.decrypt(request=request).plaintext)


class AzureKeyVault(KeyService):
    """An RSA key of Azure Key Vault or a managed HSM, which wraps by RSA-OAEP-256.

    RSA takes no context. Key Vault therefore wraps one random key for each data key, under which the data key
    is encrypted with the context as associated data (AES-256-GCM-SIV). Azure's log does not show the context.

    Args:
        client: returns a ``CryptographyClient`` of the key with this id, which may end in a version.
    """

    scheme, title, form = "azurekv", "Azure Key Vault", "https://VAULT/keys/KEY"
    pattern = r"https://[\w.:-]+/keys/[\w-]+"
    remedy = (
        "Check the credentials of azure-identity, that the key is enabled, and that they may use get, wrapKey and "
        "unwrapKey."
    )

    @cached_property
    def _client(self) -> Any:
        with optional_import(self.title, "azure-keyvault-keys", "azure"):
            from azure.identity import DefaultAzureCredential
            from azure.keyvault.keys.crypto import CryptographyClient
        credential = DefaultAzureCredential()
        return lambda key_id: CryptographyClient(key_id, credential)

    def _wrap(self, key: bytes, context: bytes) -> bytes:
        own, nonce = secrets.token_bytes(KEY_BYTES), secrets.token_bytes(NONCE_BYTES)
        result = self._client(self.name).wrap_key("RSA-OAEP-256", own)
        version = result.key_id.partition("/keys/")[2].partition("/")[2]
        if not version:
            raise PermissionError  # without the right to get the key, its version stays unknown
        return framed(version.encode()) + framed(result.encrypted_key) + nonce + aead(own).encrypt(nonce, key, context)

    def _unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        version, rest = unframed(wrapped)
        encrypted, body = unframed(rest)
        if not re.fullmatch(rb"\w+", version):  # the file must not lead to another key
            raise InvalidTag
        client = self._client(f"{self.name}/{version.decode()}")
        own = client.unwrap_key("RSA-OAEP-256", encrypted).key
        return aead(own).decrypt(body[:NONCE_BYTES], body[NONCE_BYTES:], context)


class Pkcs11(KeyService):
    """An AES key of a PKCS#11 module such as an HSM, named by a URI of RFC 7512, which wraps by AES-GCM.

    The attributes are ``token``, ``object``, ``module-path`` and ``pin-source``, a file. The context is associated
    data. The module must take nonces from its caller.
    """

    scheme, title = "pkcs11", "PKCS#11"
    form = "token=TOKEN;object=KEY?module-path=LIBRARY&pin-source=FILE"
    pattern = r"(?=.*token=)(?=.*object=)(?=.*module-path=)(?!.*pin-value=)[\w-]+=[^;?&]+([;?&][\w-]+=[^;?&]+)*"
    remedy = (
        "Check the token, the PIN of its user, and that the key is an AES key that may encrypt and decrypt. A PIN that "
        "is refused several times locks the token."
    )

    _locks: ClassVar[dict[tuple[int, str], threading.Lock]] = {}  # by process and path of a module

    def __init__(self, name: str) -> None:
        super().__init__(name)
        pairs = [part.partition("=") for part in re.split("[;?&]", name)]
        self._of = {attribute: urllib.parse.unquote(value) for attribute, _, value in pairs}

    def _reason(self, error: Exception) -> str:
        # The library gives a key no method that its attributes forbid.
        return "the key does not allow it" if isinstance(error, AttributeError) else super()._reason(error)

    @contextmanager
    def _key(self) -> Iterator[Any]:
        """Log in and yield the key; a process can log in to a module once at a time."""
        with optional_import(self.title, "python-pkcs11", "pkcs11"):
            import pkcs11
        pin = None
        if "pin-source" in self._of:
            path = Path(self._of["pin-source"].removeprefix("file:"))
            if others_can_open(path.stat()):
                raise KeyFileError(
                    f"Other users can open {path.name}, which contains the PIN. Run: chmod 600 {path.name}", param="key"
                )
            pin = path.read_text("utf-8").strip()
        module = self._of["module-path"]
        forked = (os.getpid(), module) not in self._locks and any(path == module for _, path in self._locks)
        with self._locks.setdefault((os.getpid(), module), threading.Lock()):
            library = pkcs11.lib(module)
            if forked:  # a process has to initialise a module that its parent had
                library.reinitialize()
            with library.get_token(token_label=self._of["token"]).open(user_pin=pin) as session:
                yield session.get_key(object_class=pkcs11.ObjectClass.SECRET_KEY, label=self._of["object"])

    def _wrap(self, key: bytes, context: bytes) -> bytes:
        nonce = secrets.token_bytes(NONCE_BYTES)
        with self._key() as master:
            return nonce + bytes(master.encrypt(key, **_gcm(nonce, context)))

    def _unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        with self._key() as master:
            return bytes(master.decrypt(wrapped[NONCE_BYTES:], **_gcm(wrapped[:NONCE_BYTES], context)))


def _gcm(nonce: bytes, context: bytes) -> dict[str, Any]:
    import pkcs11

    return {"mechanism": pkcs11.Mechanism.AES_GCM, "mechanism_param": pkcs11.GCMParams(nonce, aad=context)}


_SERVICES: dict[str, type[KeyService]] = {
    service.scheme: service for service in (AwsKms, VaultTransit, GoogleKms, AzureKeyVault, Pkcs11)
}


def open_service(origin: str) -> KeyService:
    """Return the provider of ``SERVICE:NAME``."""
    scheme, _, name = origin.partition(":")
    return _SERVICES[scheme](name)
