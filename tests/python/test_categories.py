"""Strings as extra columns: codes in rows and batches, dictionaries in Arrow."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import a2store
from compare import assert_same, column
from oracle import Array

LABELS = {
    "engine": "engine",
    "phase": "arrow_cast(phase, 'Utf8')",
    # In ascending order, the first string is neither the first row's nor the last row's.
    "falling": "CAST(9000 - step_index AS VARCHAR)",
    "some": "CASE WHEN step_index % 2 = 0 THEN NULL ELSE concat('é', CAST(move AS VARCHAR)) END",
    "none": "CAST(NULL AS VARCHAR)",
    "empty": "''",
    "large": "arrow_cast(phase, 'LargeUtf8')",
    "dictionary": "arrow_cast(CAST(9 - move AS VARCHAR), 'Dictionary(UInt8, Utf8)')",
}


@pytest.mark.parametrize(
    "where", ["", "WHERE step_index > 3", "WHERE run_id > 99", "ORDER BY board, run_id, step_index"]
)
def test_strings_become_codes(archive: a2store.Archive, where: str) -> None:
    selected = ", ".join(f"{sql} AS {name}" for name, sql in LABELS.items() if sql != name)
    query = archive.sql(f"SELECT board, run_id, step_index, engine, {selected} FROM steps {where}")
    texts = {name: column(pa.table(query), name) for name in LABELS}
    table = query.materialize(extra=list(LABELS), progress=False)
    rows, columns, batch = np.asarray(table), pa.table(table), table.take(np.arange(len(table)))
    assert list(table.categories) == list(LABELS)
    for name, expected in texts.items():
        present = [text for text in expected if text is not None]
        categories = sorted(set(present), key=str.encode)
        assert table.categories[name] == categories
        codes = {None: -1, **{text: code for code, text in enumerate(categories)}}
        assert rows[name].dtype == np.dtype("i2")
        assert_same(rows[name], np.array([codes[text] for text in expected], "i2"), name)
        assert_same(batch[name], rows[name], name)
        assert pa.types.is_dictionary(columns.schema.field(name).type)
        assert columns[name].null_count == len(expected) - len(present)
        assert column(columns, name).tolist() == expected.tolist()
        assert pa.record_batch(batch)[name].to_pylist() == expected.tolist()


def test_string_views(archive: a2store.Archive, steps: dict[str, Array]) -> None:
    query = archive.sql("SELECT board, arrow_cast(phase, 'Utf8View') AS phase FROM steps")
    table = query.materialize(extra=["phase"], progress=False)
    names = np.array(table.categories["phase"])
    assert names[np.asarray(table)["phase"]].tolist() == steps["phase"].tolist()
    # If the data do not match the schema's type, a reader of the stream crashes. So this check comes before other
    # reads.
    for batch in pa.RecordBatchReader.from_stream(query):
        batch.validate(full=True)


def test_too_many_strings(archive: a2store.Archive) -> None:
    def materialize(num_strings: int) -> a2store.StepTable:
        label = "concat(CAST(run_id AS VARCHAR), ' ', CAST(step_index AS VARCHAR), ' ', CAST(times.column1 AS VARCHAR))"
        steps = "steps CROSS JOIN (VALUES (0), (1)) AS times"
        query = archive.sql(f"SELECT board, {label} AS label FROM {steps} LIMIT {num_strings}")
        return query.materialize(extra=["label"], progress=False)

    with pytest.raises(a2store.ColumnError, match=r"label.*at most \d+ different strings") as caught:
        materialize(40_000)
    (most,) = (int(word) for word in str(caught.value).split() if word.isdigit())
    assert most >= 32_767
    assert len(materialize(most).categories["label"]) == most
    with pytest.raises(a2store.ColumnError, match="label"):
        materialize(most + 1)
