"""SQL statements at random, whose answers are compared with DuckDB's and with each other.

Statement ``i`` of a seed is the same whatever was asked before: ``python -m sqlfuzz --seed 1 --only 5``, in this
folder's parent.

| file | owns |
| --- | --- |
| ``dtypes.py`` | the types, and how they meet |
| ``tree.py`` | statements as trees, and their text in both dialects |
| ``dialect.py`` | what the dialects have apart, each difference by name |
| ``defects.py`` | defects that are known and not mended |
| ``data.py`` | the archive and tables that are asked |
| ``generator.py`` | statements at random |
| ``comparison.py`` | whether two answers are the same |
| ``oracles.py`` | the checks |
| ``minimizer.py`` | making a statement that fails small |
| ``campaign.py`` | many statements, and what they covered |
"""
