"""Members from a recogniser: what any detector finds in a background corpus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from vecveil.concepts.expansion.sources import ExpansionContext
from vecveil.concepts.folding import canonical
from vecveil.concepts.spans import Detector, checked_spans, merge_spans
from vecveil.errors import InvalidInputError
from vecveil.runtime import progress
from vecveil.validation import check_count, check_texts

__all__ = ["DetectorSource"]

_CHUNK = 512


class DetectorSource:
    """Proposes what a detector finds in a corpus, grouped by the labels of its spans.

    Args:
        detector: any object with ``detect(texts)``, such as `PresidioDetector` or `SpacyDetector`.
        texts: the corpus; the user's own texts will do.
        min_count: fewest times that a find must occur.
        most: members of each label, at most; the most frequent are taken.
    """

    name = "detector"

    def __init__(
        self, detector: Detector, texts: Sequence[str], *, min_count: int = 1, most: int = 1000
    ) -> None:
        owner = "DetectorSource"
        if not isinstance(detector, Detector):
            raise InvalidInputError.of(
                owner, "detector", "an object with a method detect(texts)", type(detector).__name__
            )
        self._detector = detector
        self._texts = check_texts(texts, owner=owner)
        self.min_count = check_count(min_count, owner=owner, param="min_count")
        self.most = check_count(most, owner=owner, param="most")

    def __repr__(self) -> str:
        return f"DetectorSource({type(self._detector).__name__}, {len(self._texts)} texts)"

    def members(self, context: ExpansionContext) -> Mapping[str, list[str]]:
        """Return the finds by label, the most frequent first."""
        counts: dict[str, Counter[str]] = {}
        written: dict[str, str] = {}
        positional = getattr(self._detector, "positional", False)
        size = len(self._texts) if positional else _CHUNK
        starts = range(0, len(self._texts), size)
        for start in progress(starts, "finding members", show=context.show_progress, unit="block"):
            texts = self._texts[start : start + size]
            found = checked_spans(
                self._detector.detect(texts), texts, owner=type(self._detector).__name__
            )
            for text, spans in zip(texts, found, strict=True):
                for span in merge_spans(text, spans):
                    own = text[span.start : span.end]
                    key = canonical(own)
                    written.setdefault(key, own)
                    counts.setdefault(span.label, Counter())[key] += 1
        return {
            label: [
                written[key]
                for key, count in sorted(own.items(), key=lambda item: (-item[1], item[0]))
                if count >= self.min_count
            ][: self.most]
            for label, own in counts.items()
        }
