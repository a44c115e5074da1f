"""Fit on embeddings alone: pairs with and without the concept, labels, ordinary vectors."""

import vecveil
from vecveil.cli.demo.corpus import CONCEPT_FILE, load_notes

texts = [note.text for note in load_notes()][::6]
encoder = vecveil.load_encoder("minilm")

# Where these arrays come from is up to you; here vecveil finds the concept and removes it.
found = vecveil.Concept.from_file(CONCEPT_FILE).find(texts)
positive = encoder.encode(found.positives())
negative = encoder.encode(found.negatives())  # row i: text i without the concept
background = encoder.encode([texts[i] for i in found.without_concept])
token_labels, _ = found.token_labels(min_count=5)

# All four parameters of the subspace are given, so that nothing is searched for.
shape = {"rank": 60, "kept": 128, "flattening": 0.3, "pairs": True}
protector = vecveil.fit_pairs(
    positive, negative, token_labels, background, noise_to_signal=0.3, encoder=encoder, **shape
)
released = protector.protect(positive)
kept = protector.report["utility"]["similarity"]["relative"]
print(f"{released.shape} released, {kept:.0%} of the similarity kept")
