"""Dataset columns in a directory: npz, npy and parquet files to numpy arrays, and back.

A column may be in any file. An ``.npy`` file is the column of its own path (``observation/image.npy`` is
``observation/image``), and so is an ``.npz`` with one unnamed array; any other ``.npz`` and every
``.parquet`` holds columns by name. A column that is in several files is concatenated in
the order of the files' names.
"""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from thespis.core.errors import UserError, missing_extra

Columns = dict[str, np.ndarray]


def column_files(path: Path) -> list[Path]:
    """The files of columns under a directory, in order; a file alone if it is one."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sorted(file for file in files if file.suffix in (".npz", ".npy", ".parquet"))


def read_columns(directory: Path) -> Columns:
    """Read every column under ``directory``, or in a file. Raises ``UserError`` for one that cannot be read."""
    readers = {".npz": _read_npz, ".npy": _read_npy, ".parquet": _read_parquet}
    pieces: dict[str, list[np.ndarray]] = {}
    for path in column_files(directory):
        name = path.stem if path == directory else path.relative_to(directory).with_suffix("").as_posix()
        with _reading(path):
            columns = readers[path.suffix](path, name)
        for column, values in columns.items():
            pieces.setdefault(column, []).append(values)
    return {column: _concatenate(column, parts) for column, parts in pieces.items()}


def write_columns(directory: Path, columns: Columns, file_format: str) -> None:
    """Write all columns to one file ``data.npz`` or ``data.parquet``; in parquet, rows are lists."""
    if file_format == "npz":
        np.savez(directory / "data.npz", allow_pickle=False, **columns)
    elif file_format == "parquet":
        pa, parquet = _pyarrow()
        table = pa.table({name: _to_arrow(pa, values) for name, values in columns.items()})
        parquet.write_table(table, directory / "data.parquet")
    else:
        raise UserError(f"unknown kind of dataset {file_format!r}; use npz or parquet")


def _concatenate(column: str, parts: list[np.ndarray]) -> np.ndarray:
    try:
        return parts[0] if len(parts) == 1 else np.concatenate(parts)
    except ValueError:
        shapes = ", ".join(str(part.shape) for part in parts)
        raise UserError(f"the pieces of column {column!r} do not fit together: {shapes}") from None


def _read_npz(path: Path, name: str) -> Columns:
    # opened here: np.load leaves a damaged file open
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        if archive.files == ["arr_0"]:
            return {name: archive["arr_0"]}
        return {column: archive[column] for column in archive.files}


def _read_npy(path: Path, name: str) -> Columns:
    return {name: np.load(path, allow_pickle=False)}


def _read_parquet(path: Path, name: str) -> Columns:
    pa, parquet = _pyarrow()
    # not read_table: it would add a column for a folder named "key=value"
    table = parquet.ParquetFile(path).read()
    return {column: _from_arrow(pa, column, table[column]) for column in table.column_names}


def read_parquet_table(files: list[Path]) -> Any:
    """The rows of parquet files as one ``pyarrow.Table``. Raises ``UserError`` if they cannot be read or differ."""
    pa, parquet = _pyarrow()
    tables = []
    for path in files:
        with _reading(path):
            tables.append(parquet.ParquetFile(path).read())
    with _reading(files[0].parent):
        return pa.concat_tables(tables)


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Context that turns the errors of a damaged file into a ``UserError``."""
    try:
        yield
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"cannot read {path}: {reason}") from error


def from_arrow(columns: dict[str, Any]) -> Columns:
    """Arrow columns (``ChunkedArray`` by name) as arrays. Raises ``UserError`` for one that is none."""
    pa, _ = _pyarrow()
    return {name: _from_arrow(pa, name, column) for name, column in columns.items()}


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise missing_extra("pyarrow", "data") from None
    return pyarrow, pyarrow.parquet


def _to_arrow(pa: Any, values: np.ndarray) -> Any:
    if values.ndim == 1:
        return pa.array(values)
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), int(np.prod(values.shape[1:])))


def _from_arrow(pa: Any, name: str, column: Any) -> np.ndarray:
    """Numbers ``[row]``, or ``[row, element]`` for lists of equal length (nested lists are flattened)."""
    if column.null_count:
        raise UserError(f"column {name!r} has {column.null_count} empty cells")
    rows, array = len(column), column.combine_chunks()
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if not pa.types.is_nested(array.type):
        return array.to_numpy(zero_copy_only=False)
    while pa.types.is_nested(array.type):
        if pa.types.is_struct(array.type):
            raise UserError(f"column {name!r} is a struct; give each of its fields a column {name}/FIELD")
        if not pa.types.is_fixed_size_list(array.type) and len(array.value_lengths().unique()) > 1:
            raise UserError(f"the rows of column {name!r} have lists of different lengths")
        array = array.flatten()
    return array.to_numpy(zero_copy_only=False).reshape(rows, -1 if rows else 0)
