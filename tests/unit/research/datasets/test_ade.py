"""ADE-Corpus-V2 as given out: relations, doses and sentences without either."""

from __future__ import annotations

import pytest

from harness.experiment_data import CANARY, refusal
from research.datasets import open_dataset

TEXT = "rash | after deanol 5 mg, then more rash."
EFFECTS = (
    "12|" + TEXT + "|rash|140|144|deanol|113|119\n"  # apart as the second rash is: 27
    "12|" + TEXT + "|rash|106|110|deanol|119|125\n"  # the first: 13 before
    "9|Coma by X.|Coma|0|4|X|8|9\n"
)
DOSES = "12|" + TEXT + "|5 mg|120|124|deanol|113|119\n"
NEGATIVE = "12 NEG Nothing of note.\n12 NEG " + TEXT + "\n30 NEG Nothing of note.\n"


@pytest.mark.parametrize("folder", ["ADE-Corpus-V2", "ade"])
def test_sentences_with_all_their_relations(data, folder):
    data.text(f"{folder}/DRUG-AE.rel", EFFECTS)
    data.text(f"{folder}/DRUG-DOSE.rel", DOSES)
    data.text(f"{folder}/ADE-NEG.txt", NEGATIVE)
    found = open_dataset("ade", data.path)
    assert found.texts == ("Coma by X.", "Nothing of note.", TEXT, "Nothing of note.")
    assert found.groups.tolist() == [0, 1, 1, 2]
    assert found.labels == ("adverse_event", "none", "adverse_event", "none")
    assert found.split is None
    spans = [
        [(found.texts[i][s["start"] : s["end"]], s["start"], s["label"]) for s in row]
        for i, row in enumerate(found.spans)
    ]
    assert spans[0] == [("Coma", 0, "ADVERSE_EFFECT"), ("X", 8, "DRUG")]
    assert spans[2] == [
        ("rash", 0, "ADVERSE_EFFECT"),
        ("deanol", 13, "DRUG"),
        ("5 mg", 20, "DOSE"),
        ("rash", 36, "ADVERSE_EFFECT"),
    ]
    assert spans[1] == spans[3] == []


def test_a_dose_alone_is_no_adverse_event(data):
    data.text("ade/DRUG-AE.rel", "9|Coma by X.|Coma|0|4|X|8|9\n")
    data.text("ade/DRUG-DOSE.rel", "10|5 mg of X.|5 mg|0|4|X|8|9\n")
    data.text("ade/ADE-NEG.txt", "\n")
    assert open_dataset("ade", data.path).labels == ("adverse_event", "none")


@pytest.mark.parametrize(
    ("file", "line", "words"),
    [
        ("DRUG-AE.rel", f"9|{CANARY}|Coma|0|4|X|8\n", ("fields",)),
        ("DRUG-AE.rel", f"x|{CANARY}|{CANARY}|0|4|z|8|9\n", ("fields",)),
        ("DRUG-AE.rel", f"9|{CANARY}|Coma|0|4|z|8|9\n", ("mention",)),
        ("DRUG-AE.rel", f"9|{CANARY}|zebra|0|4|{CANARY}s|8|9\n", ("drug",)),
        ("DRUG-AE.rel", f"9|{CANARY}|zebra|{CANARY}|4|z|8|9\n", ("offset",)),
        ("ADE-NEG.txt", f"{CANARY}\n", ("NEG",)),
    ],
)
def test_wrong_lines(data, file, line, words):
    data.text("ade/DRUG-AE.rel", EFFECTS)
    data.text("ade/ADE-NEG.txt", "1 NEG a\n2 NEG b\n3 NEG c\n")
    before = (data.path / "ade" / file).read_text()
    data.text(f"ade/{file}", before + line)
    message = refusal(open_dataset, "ade", data.path)
    assert all(word in message for word in (file, "line 4", *words))
