"""MIMIC-III notes: a CSV with quoted line breaks, read up to a number of notes."""

from __future__ import annotations

from functools import partial

import pytest

from harness.experiment_data import CANARY, refusal
from research.datasets import DatasetInfo, Place, open_dataset, read_mimic_notes

HEADER = (
    '"ROW_ID","SUBJECT_ID","HADM_ID","CHARTDATE","CHARTTIME","STORETIME",'
    '"CATEGORY","DESCRIPTION","CGID","ISERROR","TEXT"\n'
)
SUMMARY = "Discharge summary"


def note(text, patient=22, category=SUMMARY, error=""):
    return f'174,{patient},167853,"2151-08-04",,,"{category}","Report",,{error},"{text}"\n'


NOTES = (
    note('Admission: [**2151**]\nsaid ""well"", went\n')
    + note("from the ward", category="Nursing ")
    + note("wrong", error="1")
    + note(" ")
    + note("of another", patient=23)
    + note("again")
)


@pytest.mark.parametrize("file", ["mimic3/NOTEEVENTS.csv", "mimic-iii/NOTEEVENTS.csv.gz", "mimiciii/noteevents.csv"])
def test_discharge_summaries(data, file):
    data.text(file, HEADER.lower() + NOTES if "events" in file else HEADER + NOTES)
    found = open_dataset("mimic3", data.path)
    first = 'Admission: [**2151**]\nsaid "well", went'
    assert found.texts == (first, "of another", "again")
    assert found.labels == (SUMMARY,) * 3
    assert found.groups.tolist() == [0, 1, 0]
    assert (found.split, found.spans) == (None, None)


@pytest.mark.parametrize(
    ("options", "count"), [({"categories": ("nursing",)}, 1), ({"categories": None}, 4), ({"most": 2}, 2)]
)
def test_categories_and_most(data, options, count):
    data.text("mimic3/NOTEEVENTS.csv", HEADER + NOTES)
    place = Place(("mimic3",), ("*.csv",), partial(read_mimic_notes, **options))
    info = DatasetInfo("mimic3-part", "texts", "A part.", (place,))
    assert len(open_dataset(info, data.path).texts) == count


def test_reading_stops_at_the_most(data):
    """What lies after the last note is not read: a broken record there goes unseen."""
    data.text("mimic3/NOTEEVENTS.csv", HEADER + NOTES + '1,2,"broken')
    assert len(read_mimic_notes("m", data.path / "mimic3", most=3).texts) == 3


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (HEADER + note("a") + f"1,2,{CANARY}\n", ("fields", "found 3", "record 3")),
        (HEADER + note("a") + f'1,2,"{CANARY}', ("quote", "record 3")),
        (HEADER.replace("TEXT", "NOTE") + note("a"), ("'TEXT'",)),
        (HEADER + note(CANARY, category="ECG"), ("no notes of Discharge summary",)),
    ],
)
def test_wrong_files(data, content, words):
    data.text("mimic3/NOTEEVENTS.csv", content)
    message = refusal(open_dataset, "mimic3", data.path)
    assert all(word in message for word in ("NOTEEVENTS.csv", *words))


def test_who_has_no_access_is_told_how_to_get_it(data):
    data.path.mkdir()
    message = refusal(open_dataset, "mimic3", data.path)
    assert all(word in message for word in ("mimic3", "NOTEEVENTS.csv", "PhysioNet access", "mimic3/"))
