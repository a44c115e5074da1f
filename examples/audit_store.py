"""What leaks from a store? Attack vectors whose protection, if any, is not known."""

import vecveil
from vecveil.cli.demo.corpus import CONCEPT_FILE, load_notes

texts = [note.text for note in load_notes()][::6]  # the texts of the store that you know
concept = vecveil.Concept.from_file(CONCEPT_FILE)
vectors = vecveil.load_encoder("minilm").encode(texts)  # the store; yours is read from a file

result = vecveil.audit_store(vectors, texts, concept, skip=["alignment", "averaging"])
worst = result.worst
print(f"{worst['name']} reads {worst['value']:.0%} of the words; chance is {worst['chance']:.0%}")
for each in result.record["skipped"]:
    print(f"not run: {each['attack']}: {each['reason']}")

# With the encoder the same attacks run on its own vectors beside, and vectors that nobody
# protected are noticed.
result = vecveil.audit_store(vectors, texts, concept, encoder="minilm", skip=["alignment", "averaging"])
print(*(warning["message"] for warning in result.record["lint"]))
