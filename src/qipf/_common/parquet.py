"""Read a Parquet file that may come from anywhere: nothing made to fill the memory, and errors that name the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qipf._common.optional import require


def read_parquet(path: Path, *, most: int, value: int, too_large: str) -> Any:
    """The columns of one number or text a row, as an Arrow table; texts are dictionaries, each read once.

    Args:
        path: the file.
        most: bytes that it may unpack to.
        value: bytes that a value counts at least, repeated or not.
        too_large: what to say of a file that unpacks to more.

    Raises:
        ValueError: the file is too large, damaged or none; it is named.
    """
    arrow, parquet = (require(name, extra="bench") for name in ("pyarrow", "pyarrow.parquet"))
    data = arrow.BufferReader(path.read_bytes())
    try:
        with parquet.ParquetFile(data) as file:
            if _unpacked(file.metadata, value) > most:
                raise ValueError(f"{path} {too_large}")
            flat = [part for part in file.schema_arrow if not arrow.types.is_nested(part.type)]
        texts = [part.name for part in flat if not arrow.types.is_primitive(part.type)]
        with parquet.ParquetFile(data, read_dictionary=texts) as file:
            # in this thread alone: after an error in another one, Arrow may abort the process when it ends
            return file.read([part.name for part in flat], use_threads=False)
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no Parquet file, or a damaged one: {error}; copy it anew") from error


def _unpacked(about: Any, value: int) -> int:
    """How many bytes the file says that it unpacks to; a repeated value takes next to none in it."""
    stored = filled = 0
    widths = [max(value, about.schema.column(i).length) for i in range(about.num_columns)]  # length: of fixed texts
    for group in map(about.row_group, range(about.num_row_groups)):
        stored += max(0, group.total_byte_size)
        filled += sum(width * max(0, group.column(i).num_values) for i, width in enumerate(widths))
    return max(stored, filled, value * about.num_columns * about.num_rows)


def column_values(column: Any) -> list[Any]:
    """The values of a column; equal texts are one object."""
    values: list[Any] = []
    for chunk in column.chunks:
        if hasattr(chunk, "dictionary"):
            texts = [*chunk.dictionary.to_pylist(), None]
            values += [texts[-1 if place is None else place] for place in chunk.indices.to_pylist()]
        else:
            values += chunk.to_pylist()
    return values
