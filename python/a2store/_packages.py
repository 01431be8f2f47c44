"""Optional packages, and conversions to their tables by the Arrow C interface."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def needed(package: str, method: str) -> Any:
    """Import a package that a method requires."""
    # Some modules have another name than their package.
    module = "PIL" if package == "pillow" else package
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"{method} needs {package}: pip install {package}") from error


def to_arrow(rows: Any, method: str = "to_arrow") -> Any:
    """Return a ``pyarrow.Table`` of an object with an Arrow stream."""
    # `pyarrow.table` would import pandas, which takes half a second.
    return needed("pyarrow", method).RecordBatchReader.from_stream(rows).read_all()


def to_pandas(rows: Any) -> Any:
    """Return a ``pandas.DataFrame`` of an object with an Arrow stream."""
    needed("pandas", "to_pandas")
    table = to_arrow(rows, "to_pandas")
    return import_module("a2store._pandas").frame(table)


def to_polars(rows: Any) -> Any:
    """Return a ``polars.DataFrame`` of an object with an Arrow stream."""
    return needed("polars", "to_polars").DataFrame(rows)


def to_numpy(rows: Any) -> Any:
    """Return the columns of an object with an Arrow stream as NumPy arrays by name."""
    needed("pyarrow", "to_numpy")
    return import_module("a2store._numpy").arrays(rows)


def lazy(query: Any) -> Any:
    """Return a ``polars.LazyFrame`` of a query."""
    needed("polars", "lazy")
    return import_module("a2store._polars").scan(query)


def to_torch(batch: Any, device: Any) -> Any:
    """Return the columns of a batch as PyTorch tensors by name."""
    needed("torch", "to_torch")
    return import_module("a2store._tensors").to_device(batch, device)


def to_jax(batch: Any, device: Any) -> Any:
    """Return the columns of a batch as JAX arrays by name."""
    needed("jax", "to_jax")
    return import_module("a2store._jax").arrays(batch, device)
