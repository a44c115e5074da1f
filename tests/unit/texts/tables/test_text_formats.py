"""CSV, TSV, JSON lines and text lines: what is read, and how what cannot be read is refused."""

from __future__ import annotations

import gzip
import io
import json
import sys

import pytest

from harness.errors import raises
from vecveil.errors import InvalidInputError
from vecveil.io import TextEncodingWarning
from vecveil.texts.tables import read_table, read_texts

CANARY = "zebra-7731"


def rows(path, **options):
    """Return all rows of a file as dicts, text column included."""
    reader = read_table(path, **options)
    found = []
    for chunk in reader:
        for i in range(chunk.rows):
            row = {name: values[i] for name, values in chunk.columns.items()}
            if chunk.texts is not None:
                row[reader.text_column] = chunk.texts[i]
            found.append(row)
    assert len(found) == reader.rows
    return found


class TestDelimited:
    def test_quoted_delimiters_quotes_and_line_breaks(self, write):
        path = write("a.csv", 'id,text\n007,"a, ""b""\nc"\n8,plain\n')
        assert rows(path) == [{"id": "007", "text": 'a, "b"\nc'}, {"id": "8", "text": "plain"}]

    @pytest.mark.parametrize("ends", ["\r\n", "\n", "\r"])
    def test_line_ends(self, write, ends):
        path = write("a.csv", ends.join(["id,text", "1,a", "2,b"]))
        assert [row["text"] for row in rows(path)] == ["a", "b"]

    def test_line_ends_inside_quotes_are_kept(self, write):
        path = write("a.csv", b'text,n\r\n"a\r\nb",1\r\n')
        assert rows(path)[0]["text"] == "a\r\nb"

    @pytest.mark.parametrize("encoding", ["utf-8", "utf8", "UTF_8"])
    def test_byte_order_mark(self, write, encoding):
        path = write("a.csv", b"\xef\xbb\xbftext\nx\n")
        assert rows(path, encoding=encoding) == [{"text": "x"}]

    def test_other_encodings_when_asked(self, write):
        assert rows(write("a.csv", "text\ncafé\n".encode("latin1")), encoding="latin1") == [{"text": "café"}]
        assert rows(write("b.csv", "text\ncafé\n".encode("utf-16")), encoding="utf-16") == [{"text": "café"}]

    @pytest.mark.parametrize("delimiter", [",", ";", "\t"])
    def test_delimiter_is_told_by_the_header(self, write, delimiter):
        path = write("a.csv", f"id{delimiter}text\n1{delimiter}x\n")
        assert rows(path) == [{"id": "1", "text": "x"}]

    def test_delimiter_by_option(self, write):
        assert rows(write("a.csv", "id|text\n1|x, y\n"), delimiter="|") == [{"id": "1", "text": "x, y"}]

    def test_tsv_keeps_commas(self, write):
        assert rows(write("a.tsv", "text\tid\na, b\t1\n")) == [{"text": "a, b", "id": "1"}]

    @pytest.mark.parametrize(
        ("lines", "texts"),
        [
            ('1\t"hello\n2\tworld\n3\tfoo"\n4\tx\n', ['"hello', "world", 'foo"', "x"]),
            ('1\t"hello\n2\tworld', ['"hello', "world"]),
            ('1\t"a\n2\t"b\n3\tc\n', ['"a', '"b', "c"]),
            ('1\t"a" b\n2\tx"y\n3\t"\n', ['"a" b', 'x"y', '"']),
            ('"1\ta"\n2\tb\n', ['a"', "b"]),
            ('1\t"a\tb"\n2\t"say ""hi"""\n', ["a\tb", 'say "hi"']),
            ('1\t"Dear\r\nsir"\r\n\r\n2\tx\r\n', ["Dear\r\nsir", "x"]),
            ('1\t"a\n\n2\tb"\n', ['"a', 'b"']),
        ],
    )
    def test_quotes_between_tabs(self, write, lines, texts):
        for name, options in (("a.tsv", {}), ("a.csv", {}), ("b.csv", {"delimiter": "\t"})):
            path = write(name, "id\ttext\n" + lines)
            assert [row["text"] for row in rows(path, text_column="text", **options)] == texts

    def test_quotes_in_a_header_between_tabs(self, write):
        assert rows(write("a.tsv", '"id\ttext\n1\ta"\n')) == [{'"id': "1", "text": 'a"'}]
        assert rows(write("b.tsv", '\n\n"text"\n"a"\n\nb\n"\n')) == [{"text": "a"}, {"text": "b"}, {"text": '"'}]

    def test_one_row_or_several_between_tabs(self, write, refuses):
        with refuses("a.tsv", "line 3", "one row with line breaks, or several"):
            read_table(write("a.tsv", f'text\nx\n"{CANARY}\nb"\n'))

    @pytest.mark.parametrize("lines", ["1\n2\tb\n", '1\t"a" b\n2\n', '1\t"a\n2\n', '1\t"a\n2"\tb\tc\n3\td\n'])
    def test_rows_between_tabs_with_too_few_fields(self, write, refuses, lines):
        with refuses("a.tsv"):
            read_table(write("a.tsv", "id\ttext\n" + lines))

    def test_gzip_by_content_whatever_the_name(self, write):
        data = gzip.compress(b"text\nx\n")
        assert rows(write("a.csv.gz", data)) == rows(write("a.csv", data)) == [{"text": "x"}]

    def test_unnamed_index_column_gets_a_name(self, write):
        assert rows(write("a.csv", ",text\n0,x\n")) == [{"unnamed_1": "0", "text": "x"}]

    def test_blank_lines_are_no_rows(self, write):
        assert len(rows(write("a.csv", "text,b\n\nx,1\n\n\ny,2\n"))) == 2

    def test_long_field(self, write):
        text = "word " * 100_000
        assert rows(write("a.csv", f'text\n"{text}"\n')) == [{"text": text}]

    def test_only_column_is_the_text(self, write):
        assert read_table(write("a.csv", "note\nx\n")).text_column == "note"

    def test_chunks_hold_at_most_chunk_rows(self, write):
        path = write("a.csv", "text\n" + "x\n" * 10)
        chunks = list(read_table(path, chunk_rows=4))
        assert [(c.first_row, c.rows) for c in chunks] == [(0, 4), (4, 4), (8, 2)]

    def test_can_be_iterated_twice(self, write):
        reader = read_table(write("a.csv", "text\nx\n"))
        assert [c.texts for c in reader] == [c.texts for c in reader] == [["x"]]

    def test_ragged_row(self, write, refuses):
        path = write("a.csv", f"id,text\n1,x\n2,{CANARY},more\n")
        with refuses("a.csv", "3 fields", "row 2", "header 2", "','"):
            read_table(path)

    @pytest.mark.parametrize("record", ['"open', '"a" b', '"a"b"c"'])
    def test_broken_quotes(self, write, refuses, record):
        path = write("a.csv", f"id,text\n1,x\n2,{record} {CANARY}\n")
        with refuses("a.csv", "quote", "line 3"):
            read_table(path)

    def test_duplicate_columns(self, write, refuses):
        with refuses("1 column names twice", "'text'"):
            read_table(write("a.csv", "text,id,text\na,b,c\n"))

    def test_header_without_rows(self, write, refuses):
        with refuses("a.csv", "a header (2 columns) and no rows"):
            read_table(write("a.csv", "id,text\n"))

    def test_blank_file(self, write, refuses):
        with refuses("no rows"):
            read_table(write("a.csv", "\n\n"))

    def test_bad_delimiter(self, write, refuses):
        with refuses("`delimiter`", "one character", error=InvalidInputError):
            read_table(write("a.csv", "text\nx\n"), delimiter=";;")

    def test_missing_column_lists_columns_and_the_nearest(self, write, refuses):
        path = write("a.csv", "id,note_text\n1,x\n")
        with refuses("text_column", "'id', 'note_text'", "Did you mean 'note_text'?"):
            read_table(path, text_column="note_txt")
        with refuses("`text_column`", "--text-column"):
            read_table(path)

    def test_missing_column_without_header_does_not_show_the_data(self, write, refuses):
        path = write("a.csv", f"1,The patient {CANARY} came in. He left.\n2,y\n")
        with refuses("2 columns, not listed", "header"):
            read_table(path, text_column="text")
        with refuses("2 columns, not listed", "header"):
            read_table(write("b.csv", f"42,{CANARY}\n43,y\n"))

    def test_sole_column_without_header_must_be_named(self, write, refuses):
        first = f"I met {CANARY} today"
        for name in ("a.csv", "a.tsv"):
            path = write(name, f"{first}\nsecond text\n")
            with refuses("`text_column`", "not listed", "header", "--text-column"):
                read_table(path)
            assert read_table(path, text_column=first).rows == 1

    @pytest.mark.parametrize("first", [f"I met {CANARY}", "me@example.org"])
    def test_names_that_occur_twice_are_not_shown_if_they_look_like_data(self, write, first):
        with raises("E-DATA-FILE", "path") as caught:
            read_table(write("a.csv", f"{first},{first},text\n1,2,3\n"))
        assert first not in str(caught.value)

    def test_names_of_several_words_are_not_listed_but_a_near_one_is_offered(self, write, refuses):
        path = write("a.csv", "Full Name,Note Text\na,b\n")
        with refuses("not listed", "Did you mean 'Note Text'?"):
            read_table(path, text_column="note text")

    def test_other_columns_are_looked_up(self, write, refuses):
        with refuses("`columns`", "'ID'", "Did you mean 'id'?"):
            read_table(write("a.csv", "id,text\n1,x\n"), columns=["ID"])


class TestEncoding:
    def test_mixed_encodings_name_line_and_byte(self, write, refuses):
        good = f"text\n{CANARY} né\n".encode()
        path = write("a.csv", good + "café\n".encode("latin1") + b"x\n")
        with refuses("a.csv", "utf-8", "line 3", f"byte offset {len(good) + 3}", "iconv -f cp1252"):
            read_table(path)

    def test_offset_is_right_far_into_the_file(self, write, refuses):
        good = "é line of text\n".encode() * 40_000
        with refuses("line 40001", f"byte offset {len(good)})"):
            read_table(write("a.txt", good + b"\xff\n"))

    def test_character_cut_off_at_the_end(self, write, refuses):
        with refuses("line 2", "byte offset 2"):
            read_table(write("a.txt", b"a\n\xc3"))

    @pytest.mark.parametrize(
        ("content", "encoding", "advice"),
        [
            ("text\nO’Brien\n".encode("cp1252"), "utf-8", "--encoding cp1252 "),
            ("text\ncafé\n".encode("latin1"), "utf-8", "--encoding cp1252 "),  # the same in both
            (("text\n" + "a\n" * 40_000 + "O’Brien\n").encode("cp1252"), "utf-8", "--encoding cp1252 "),
            (f"text\n{CANARY}\n".encode("utf-16"), "utf-8", "--encoding utf-16 "),
            (f"text\n{CANARY}\n".encode("utf-16-le"), "utf-8", "--encoding utf-16-le "),
            (f"text\n{CANARY}\n".encode("utf-16-be"), "cp1252", "--encoding utf-16-be "),
            (f"text\n{CANARY}\n".encode("utf-32"), "utf-8", "--encoding utf-32 "),
            ("text\nПривет, мир\n".encode("cp1251"), "utf-8", "Find out its encoding"),
            ("text\nÏé\n".encode() + b"\x8f", "cp1252", "Find out its encoding"),
            ("text\nÁ, Ý\n".encode(), "cp1252", "--encoding utf-8 "),
        ],
    )
    def test_the_bytes_suggest_the_encoding(self, write, refuses, content, encoding, advice):
        with refuses(advice):
            list(read_table(write("a.csv", content), encoding=encoding).rows())

    @pytest.mark.parametrize("suffix", ["csv", "txt", "jsonl"])
    def test_text_decoded_as_latin1_is_warned_of(self, write, suffix):
        content = '{"text": "O’Brien"}\n' if suffix == "jsonl" else "text\nO’Brien\n"
        with pytest.warns(TextEncodingWarning, match="control characters"):
            read_table(write(f"a.{suffix}", content.encode("cp1252")), encoding="latin1")
        with pytest.warns(TextEncodingWarning, match="control characters"):
            read_table(write(f"b.{suffix}", content.encode()), encoding="latin1")
        read_table(write(f"c.{suffix}", content.encode("cp1252")), encoding="cp1252")

    @pytest.mark.parametrize("encoding", ["klingon", "zlib", "rot13", "", "a\0b"])
    def test_unknown_encoding(self, write, refuses, encoding):
        with refuses("`encoding`", error=InvalidInputError):
            read_table(write("a.txt", "x\n"), encoding=encoding)


class TestJsonLines:
    def write_rows(self, write, *objects, name="a.jsonl"):
        return write(name, "".join(json.dumps(item) + "\n" for item in objects))

    def test_values_keep_their_types(self, write):
        path = self.write_rows(
            write,
            {"text": "a", "n": 1, "x": 1, "ok": True, "spans": [{"start": 0, "end": 1}], "id": 7},
            {"text": "b", "n": None, "x": 2.5, "ok": False, "spans": [], "id": "7"},
            {"text": "c", "late": {"k": [1]}},
        )
        reader = read_table(path)
        assert reader.types == {
            "text": "string",
            "n": "int64",
            "x": "float64",
            "ok": "bool_",
            "spans": "json",
            "id": "json",
            "late": "json",
        }
        found = rows(path)
        assert found[0]["spans"] == [{"start": 0, "end": 1}]
        assert found[2] == {
            "text": "c",
            "n": None,
            "x": None,
            "ok": None,
            "spans": None,
            "id": None,
            "late": {"k": [1]},
        }

    def test_type_that_changes_far_into_the_file(self, write):
        path = self.write_rows(write, *[{"text": "a", "id": 1}] * 9000, {"text": "a", "id": "x"})
        assert read_table(path).types["id"] == "json"

    @pytest.mark.parametrize(
        ("values", "kind"),
        [
            ([2**60, 1], "int64"),
            ([2**60, 0.5], "json"),
            ([2**64, 1], "json"),
            ([2**53 + 1, 2**53], "int64"),
            ([None, None], "string"),
            ([True, 1], "json"),
        ],
    )
    def test_numbers_never_lose_digits(self, write, values, kind):
        path = self.write_rows(write, *[{"text": "a", "v": value} for value in values])
        assert read_table(path).types["v"] == kind
        assert [row["v"] for row in rows(path)] == values

    @pytest.mark.parametrize(
        ("number", "value"),
        [
            ("3.10", 3.1),
            ("1E5", 100000.0),
            ("0.10000000000000001", 0.1),
            ("0.3000000000000000166", "0.3000000000000000166"),
            ("12345678901234567.89", "12345678901234567.89"),
            ("1e400", "1e400"),
            ("1e-400", "1e-400"),
            ("0e5", 0.0),
        ],
    )
    def test_numbers_that_float64_cannot_hold_are_texts(self, write, number, value):
        (row,) = rows(write("a.jsonl", f'{{"text": "a", "v": {number}, "list": [{number}]}}\n'))
        assert (row["v"], row["list"]) == (value, [value])

    def test_gzip_blank_lines_and_mark(self, write):
        data = b"\xef\xbb\xbf" + b'{"text": "a"}\r\n\r\n{"text": "b"}'
        assert len(rows(write("a.jsonl.gz", gzip.compress(data)))) == 2

    def test_ndjson(self, write):
        assert len(rows(write("a.ndjson", '{"text": "a"}\n'))) == 1

    @pytest.mark.parametrize(
        ("line", "words"),
        [
            (f'{{"text": "{CANARY}"', ["not JSON", "line 2"]),
            (f'["{CANARY}"]', ["JSON list", "line 2", "jq"]),
            (f'"{CANARY}"', ["JSON str", "line 2"]),
            ('{"text": ' + "[" * 5000 + "]" * 5000 + "}", ["100 nested", "line 2"]),
            ('{"text": "' + CANARY + '\\ud800"}', ["surrogate", "line 2"]),
            ('{"\\ud800": 1}', ["surrogate", "line 2"]),
            ('{"n": ' + "9" * 5000 + "}", ["not JSON", "line 2"]),
            ('{"text": "a", "n": {"b": 1, "b": "' + CANARY + '"}}', ["same key twice", "line 2"]),
        ],
    )
    def test_broken_line(self, write, refuses, line, words):
        with refuses("a.jsonl", *words):
            read_table(write("a.jsonl", '{"text": "a"}\n' + line + "\n"))

    def test_brackets_in_a_string_are_no_nesting(self, write):
        assert len(rows(self.write_rows(write, {"text": '[{"' * 500}))) == 1

    def test_escaped_pair_is_a_character(self, write):
        assert rows(write("a.jsonl", '{"text": "\\ud83d\\ude00"}\n')) == [{"text": "😀"}]

    def test_json_array_over_lines(self, write, refuses):
        with refuses("line 1", "jq -c '.[]'"):
            read_table(write("a.jsonl", '[\n{"text": "a"}\n]\n'))

    def test_null_texts(self, write, refuses):
        path = self.write_rows(write, {"text": "a"}, {"text": None}, {"id": CANARY})
        with refuses("null", "row 2 (counted from 1)", "dropna"):
            list(read_table(path))

    def test_text_that_is_no_text(self, write, refuses):
        path = self.write_rows(write, {"text": "a"}, {"text": [CANARY]})
        with refuses("list", "row 2"):
            list(read_table(path))

    def test_column_of_numbers_as_text(self, write, refuses):
        path = self.write_rows(write, {"text": "a", "n": 1})
        with refuses("'n'", "int64"):
            read_table(path, text_column="n")

    def test_too_many_fields(self, write, refuses):
        path = self.write_rows(write, *[{f"{CANARY}{i}": 1, "text": "a"} for i in range(10_001)])
        with refuses("10000 different fields"):
            read_table(path)


class TestTextLines:
    def test_blank_line_is_an_empty_text(self, write):
        assert read_texts(write("a.txt", "a\n\nb\n")).texts == ["a", "", "b"]

    def test_only_line_ends_split(self, write):
        assert read_texts(write("a.txt", "a\x0bb\u2028c\r\nd")).texts == ["a\x0bb\u2028c", "d"]

    def test_line_that_is_too_long(self, write, refuses):
        with refuses("16777216 characters", "Line 2"):
            read_table(write("a.txt", "x\n" + "a" * (2**24 + 1)))


class TestStandardInput:
    def feed(self, monkeypatch, data):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    def test_text_lines(self, monkeypatch):
        self.feed(monkeypatch, b"a\nb\n")
        assert read_texts("-").texts == ["a", "b"]

    def test_json_lines_gzipped(self, monkeypatch):
        self.feed(monkeypatch, gzip.compress(b'{"text": "a", "n": 1}\n'))
        assert read_texts("-", format="jsonl", columns=["n"]).columns == {"n": [1]}

    def test_empty(self, monkeypatch, refuses):
        self.feed(monkeypatch, b"")
        with refuses("standard input", "empty"):
            read_texts("-")

    def test_binary_formats_are_refused(self, refuses):
        with refuses("parquet", "pipe", error=InvalidInputError):
            read_table("-", format="parquet")
