"""A differential fuzzer: random SQL statements, checked against DuckDB and against each other.

A seed and a number determine a statement, regardless of earlier statements: ``python -m sqlfuzz --seed 1 --only 5``, in
this folder's parent.

| file | owns |
| --- | --- |
| ``dtypes.py`` | the types, and common types |
| ``tree.py`` | statements as trees, and their text in both dialects |
| ``dialect.py`` | the differences between the dialects, by name |
| ``defects.py`` | known defects that are not fixed |
| ``data.py`` | the archive and the tables that statements read |
| ``generator.py`` | random statements |
| ``comparison.py`` | whether two answers are the same |
| ``oracles.py`` | the checks |
| ``minimizer.py`` | shrinking a statement that fails |
| ``worker.py``, ``cores.c`` | the same statements in processes with other numbers of threads |
| ``campaign.py`` | running many statements, and their coverage |
"""
