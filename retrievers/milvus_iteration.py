"""Reading all rows of a collection that match an expression, however many there are."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pymilvus import MilvusClient

_BATCH = 1000


def iterate_rows(
    client: MilvusClient,
    collection_name: str,
    *,
    output_fields: Sequence[str],
    expression: str = "",
    timeout: float,
    slow_timeout: float,
) -> Iterator[dict[str, Any]]:
    """Read rows in batches.

    :param client: The client.
    :param collection_name: The collection.
    :param output_fields: What to read of each row.
    :param expression: Milvus filter; empty for all rows.
    :param timeout: Seconds until Milvus must have answered at all.
    :param slow_timeout: Seconds that a batch may take.
    :returns: The rows in any order.
    """
    # The iterator begins with the same question, but waits for the answer without end.
    client.describe_collection(collection_name, timeout=timeout)
    with _without_timestamp_warning():
        rows = client.query_iterator(
            collection_name,
            batch_size=_BATCH,
            filter=expression,
            output_fields=list(output_fields),
            timeout=slow_timeout,
            # A server goes on returning deleted rows for a moment, even to the client that deleted them.
            consistency_level="Strong",
        )
    try:
        while batch := rows.next():
            yield from batch
    finally:
        rows.close()


@contextmanager
def _without_timestamp_warning() -> Iterator[None]:
    # Milvus Lite keeps no timestamps for iterators, which pymilvus reports each time as if something had failed.
    logger = logging.getLogger("pymilvus.orm.iterator")
    logger.addFilter(_is_no_timestamp_warning)
    try:
        yield
    finally:
        logger.removeFilter(_is_no_timestamp_warning)


def _is_no_timestamp_warning(record: logging.LogRecord) -> bool:
    return "mvccTs" not in record.getMessage()
