"""How many rows go to Milvus in one request.

A first load takes the same way as every other write: large upserts. Against a server of version 2.3 they write some
thousands of rows a second, inserts hardly more, and no embedding model on a CPU comes near. Milvus's own bulk insert
reads files that lie in the server's object storage, and takes no rows: from another machine that needs the storage's
address and keys, which a client's settings don't have. Its jobs run in the background and replace nothing, so that a
load that was cut off and begun again would leave chunks twice.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

MOST_ROWS = 1000
"""Of a request; from three hundred on, more of them make the rows no quicker."""
MOST_BYTES = 16_000_000
"""Of a request, roughly. A server refuses 64 MiB (``proxy.grpc.serverMaxRecvSize``)."""
_BYTES_OF_A_NUMBER = 4
_MOST_BYTES_OF_A_CHARACTER = 4


def request_batches(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Group rows, bounded in number and in bytes.

    :param rows: Field names to values.
    :returns: Groups of at least one row, in the same order.
    """
    batch: list[dict[str, Any]] = []
    total = 0
    for row in rows:
        size = _most_bytes(row)
        if batch and (len(batch) == MOST_ROWS or total + size > MOST_BYTES):
            yield batch
            batch, total = [], 0
        batch.append(row)
        total += size
    if batch:
        yield batch


def _most_bytes(row: Mapping[str, Any]) -> int:
    return sum(
        len(name)
        + (
            len(value) * (_MOST_BYTES_OF_A_CHARACTER if isinstance(value, str) else _BYTES_OF_A_NUMBER)
            if isinstance(value, Sequence)
            else _BYTES_OF_A_NUMBER
        )
        for name, value in row.items()
    )
