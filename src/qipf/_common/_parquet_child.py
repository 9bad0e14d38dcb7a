"""Run as a script: decode one Parquet file within limits and write it to standard output as an Arrow stream."""

from __future__ import annotations

import sys
from typing import Any

TOO_LARGE = 3
"""The exit code where the limits do not suffice."""


def main(path: str, most: int, row: int, seconds: int) -> None:
    """Write the columns of one value per row; MemoryError where they exceed the limits."""
    import pyarrow
    from pyarrow import parquet

    _limit(most, seconds)
    with parquet.ParquetFile(path) as file:
        flat = [part for part in file.schema_arrow if not pyarrow.types.is_nested(part.type)]
        if _claimed(file.metadata) > most or file.metadata.num_rows * row > 2 * most:
            raise MemoryError
    texts = [part.name for part in flat if not pyarrow.types.is_primitive(part.type)]
    with parquet.ParquetFile(path, read_dictionary=texts, page_checksum_verification=True) as file:
        # in this thread alone: after an error in another one, Arrow may abort the process when it ends
        table = file.read([part.name for part in flat], use_threads=False)
    if table.num_rows * row > 2 * most:
        raise MemoryError
    table.validate(full=True)
    with pyarrow.ipc.new_stream(sys.stdout.buffer, table.schema) as stream:
        stream.write_table(table)


def _limit(most: int, seconds: int) -> None:
    """Take at most `most` bytes more than now, and `seconds` of processor time."""
    try:
        import resource
    except ImportError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    try:
        with open("/proc/self/statm") as file:  # noqa: PTH123 (nothing else is needed from pathlib)
            now = int(file.read().split()[0]) * resource.getpagesize()
    except OSError:  # not Linux
        return
    resource.setrlimit(resource.RLIMIT_AS, (now + most, now + most))


def _claimed(about: Any) -> int:
    """Bytes that the file says it unpacks to; texts of a fixed length are not stored as dictionaries."""
    stored = filled = 0
    widths = [about.schema.column(i).length for i in range(about.num_columns)]
    for group in map(about.row_group, range(about.num_row_groups)):
        stored += max(0, group.total_byte_size)
        filled += sum(max(0, width) * max(0, group.column(i).num_values) for i, width in enumerate(widths))
    return max(stored, filled)


if __name__ == "__main__":
    try:
        main(sys.argv[1], *map(int, sys.argv[2:]))
    except MemoryError:  # of which Arrow's is one
        sys.exit(TOO_LARGE)
    except Exception as error:  # Arrow, its Thrift reader and the decoders of texts share no class
        sys.exit(" ".join(str(error).split()))
