"""Segments of a sealed index: what a storage, or whoever writes texts, can make of their bytes."""

from __future__ import annotations

import hashlib
import io
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.errors import raises
from vecveil.index import SealedIndex, state
from vecveil.index.blocks import BLOCK, BlockReader, BlockWriter, Spans
from vecveil.index.chain import encoder_tag
from vecveil.index.index_keys import DataKeys, KeySource
from vecveil.index.segments import MANY
from vecveil.index.words import Words, scores, word_sections
from vecveil.keys import KeyFile

NAME = "segments/" + "0" * 32


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "search.keys"
    KeyFile.create(path, "first")
    return path


class Held:
    """An object in memory."""

    far = False

    def __init__(self, data: bytes) -> None:
        self.data, self.size = data, len(data)

    def spans(self, wanted: Spans) -> list[bytes]:
        return [self.data[start:stop] for start, stop in wanted]

    def close(self) -> None: ...


class Lengths:
    """Encodes a text as its length."""

    def __init__(self, fingerprint: str, n: int = 4) -> None:
        self.fingerprint, self.n = fingerprint, n

    def encode(self, texts: list[str]) -> Any:
        return np.array([[len(text), *([1.0] * (self.n - 1))] for text in texts])


def sealed(keys: Path, content: bytes) -> tuple[bytes, DataKeys]:
    """Return the object with a content, and its keys."""
    source: Any = KeySource(keys, "notes").new()
    file = io.BytesIO()
    writer = BlockWriter(file, NAME, source, source.current())
    writer.write(content)
    writer.close()
    return file.getvalue(), source


def test_an_object_that_ends_early_does_not_open(keys: Path) -> None:
    """Also one that ends with a piece of a block that is too short for any content, so that nobody would read it."""
    data, index_keys = sealed(keys, bytes(4 * BLOCK))
    start = 20 + int.from_bytes(data[16:20], "little")
    for end in (*range(18), BLOCK, BLOCK + 15):
        for blocks in range(4):
            with raises("E-SEAL-OPEN"):
                reader = BlockReader(Held(data[: start + blocks * (BLOCK + 16) + end]), NAME, index_keys)
                reader.read([(max(reader.length - 8, 0), reader.length)])


def test_nothing_is_read_for_an_empty_part(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, index_keys = sealed(keys, bytes(4 * BLOCK))
    reader = BlockReader(Held(data), NAME, index_keys)
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(Held, "spans", lambda held, spans: asked.extend(spans) or [b""] * len(spans))
    assert reader.read([(5, 5), (2 * BLOCK, 2 * BLOCK)]) == [b"", b""]
    assert not asked


@pytest.mark.parametrize(
    "header",
    [
        b"[" * 60_000,
        b"9" * 60_000,
        b"null",
        b'{"key_id":1,"wrapped":2}',
        b'{"key_id":"\\ud800","wrapped":""}',
        b'{"key_id":"\\u001b]0;gone\\u0007","wrapped":""}',
        b'{"key_id":"%s","wrapped":""}' % (b"a" * 60_000),
        b'{"key_id":"provider","wrapped":"","more":%s}' % (b"[" * 60_000),
    ],
    ids=lambda header: header[:30].decode(),
)
def test_a_header_that_a_storage_invents_is_refused_and_not_quoted(keys: Path, header: bytes) -> None:
    data, index_keys = sealed(keys, bytes(100_000))
    with raises("E-SEAL-OPEN") as caught:
        BlockReader(Held(data[:16] + len(header).to_bytes(4, "little") + header + data), NAME, index_keys)
    assert len(str(caught.value)) < 300
    assert str(caught.value).isprintable()


def test_blocks_that_another_thread_drops_are_still_returned(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vecveil.index.blocks._KEPT", 4)
    content = np.random.default_rng(0).bytes(8 * BLOCK)
    data, source = sealed(keys, content)
    held = Held(data)
    held.far = True
    reader = BlockReader(held, NAME, source)
    reader.read([(0, 10)])
    spans, nested = held.spans, list[bytes]()

    def meanwhile(wanted: Spans) -> list[bytes]:
        if not nested:  # another thread, which fills what is kept
            nested.append(b"")
            for number in range(2, 8):
                nested.extend(reader.read([(number * BLOCK, number * BLOCK + 10)]))
        return spans(wanted)

    monkeypatch.setattr(held, "spans", meanwhile)
    assert reader.read([(0, 10), (BLOCK, BLOCK + 10)]) == [content[:10], content[BLOCK : BLOCK + 10]]
    assert nested[1:] == [content[number * BLOCK : number * BLOCK + 10] for number in range(2, 8)]


def test_rows_that_look_like_prepared_vectors_prepare_none(tmp_path: Path, keys: Path) -> None:
    """Whoever chooses texts, ids and vectors of rows does not choose the vectors of the next encoder."""
    index = SealedIndex(tmp_path / "notes", keys, encoder=Lengths("one"), max_staleness=0)
    index.add(["a", "bb"], ids=["a", "b"])
    tag = encoder_tag(index._log.advance().mark, "two")
    names = [hashlib.blake2b(text.encode(), digest_size=16).hexdigest() for text in ("a", "bb")]
    published, index._log._published = index._log._published, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        index.add([tag, tag], ids=names, vectors=np.full((2, 4), 7.0))
    index._log._published = published  # type: ignore[method-assign]
    index.reencode(Lengths("two"))
    np.testing.assert_array_equal(index.get(["a", "b"]).vectors, Lengths("two").encode(["a", "bb"]))


def test_hits_are_read_after_another_encoder_has_another_dimension(tmp_path: Path, keys: Path) -> None:
    index = SealedIndex(tmp_path / "notes", keys, encoder=Lengths("one"), max_staleness=0)
    index.add(["a", "bb"], ids=["a", "b"])
    hits = index.find("bb", top=1)
    index.reencode(Lengths("two", 5))
    np.testing.assert_array_equal(index.read(hits).vectors, [[2, 1, 1, 1]])


@pytest.mark.parametrize("chunk", [MANY, MANY + 1])
def test_many_rows_are_encoded_again(tmp_path: Path, keys: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr("vecveil.index.log._CHUNK", chunk)
    index = SealedIndex(tmp_path / "notes", keys, encoder=Lengths("one"))
    texts = [f"{i:0{i % 50}}" for i in range(MANY + 100)]
    index.add(texts, ids=list(map(str, range(len(texts)))))
    assert index.reencode(Lengths("two", 5)) == len(texts)
    np.testing.assert_array_equal(index.get(["7", "2049"]).vectors[:, 0], [len(texts[7]), len(texts[2049])])


def test_the_words_of_texts_take_few_bytes_a_word() -> None:
    texts = [" ".join(f"w{(i * 7 + j * j) % 997}" for j in range(100)) for i in range(2000)]
    tracemalloc.start()
    try:
        postings = dict(word_sections(texts))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert postings["words.lengths"].sum() == 200_000
    assert peak < 45 * 200_000


def test_the_first_searches_read_the_codes_of_a_segment_once(
    tmp_path: Path, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after a fork in that moment, whose child has no thread that would release a lock."""
    with SealedIndex(tmp_path / "notes", keys) as made:
        made.add(ids=list(map(str, range(MANY + 1))), vectors=np.eye(MANY + 1, 8))
    index, read, reads = SealedIndex(tmp_path / "notes", keys, vectors="disk"), state._codes, list[Any]()
    together = threading.Barrier(4)

    def slow(segment: Any) -> Any:
        reads.append(segment)
        time.sleep(0.1)
        return read(segment)

    def first(_: int) -> Any:
        together.wait()
        return index.search(np.ones(8), top=1).ids

    monkeypatch.setattr(state, "_codes", slow)
    index.refresh()
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(first, range(4)))
    assert len(reads) == 1
    index.refresh(afresh=True)
    (part,) = index._log.snapshot.parts.values()
    with part.scan._making:
        index._log.after_fork()
        assert index.search(np.ones(8), top=1).ids


def test_the_counts_of_one_segment_bend_no_score_of_another() -> None:
    """A member who only adds writes its segments' words itself: rows that repeat, lengths that are no numbers."""
    texts, every = ["aspirin and water", "aspirin", "tea"], np.ones(3, np.bool_)
    honest, sections = Words.of(texts), dict(word_sections(texts))

    def altered(**changes: Any) -> Words:
        return Words(lambda name, _, part: {**sections, **changes}[name][part])

    count = len(sections["words"])
    repeated = altered(
        **{
            "words.ends": np.arange(count + 1, dtype=np.uint32) * 1000,
            "words.rows": np.zeros(1000 * count, np.int32),
            "words.counts": np.ones(1000 * count, np.uint16),
        }
    )
    first, _ = scores("aspirin tea water", [(honest, every), (repeated, every)])
    assert (first > 0).all()
    for wrong in (-1, np.nan):
        with pytest.raises(ValueError):
            altered(**{"words.lengths": np.full(3, wrong, np.float32)})
