"""Whether an existing Milvus collection can serve: its vector field, its metric, the model that it was built with."""

from pymilvus import MilvusClient

from knowledge_lookup.retrievers import metadata as keys
from knowledge_lookup.retrievers.errors import EmbeddingModelMismatchError, VectorStoreError

METRIC = "L2"
INDEX_TYPE = "FLAT"
"""An exhaustive search, on Milvus Lite and on a server.

How large a collection becomes nobody knows when it is made, and approximate indexes lose what is searched for among
few documents: the graph of Milvus Lite (HNSW, AUTOINDEX) is left before it gets to them, and so is the temporary index
by which a server searches what it hasn't indexed yet. In return a search takes twice as long on Milvus Lite, which
walks over all rows whatever the index, and on a server 10 ms more for 100,000 chunks. An index that somebody makes for
more of them is used as it is.
"""
SLOW_FACTOR = 15
"""What changes a collection may take this many times as long as what asks it."""
REBUILD = "rebuild it with `knowledge-lookup sync --rebuild`, or choose another milvus.collection"


def check_collection(
    client: MilvusClient,
    collection_name: str,
    *,
    where: str,
    vector_field: str,
    embedding_model: str | None,
    timeout: float,
) -> int:
    """Check a collection, and load it.

    A collection without an index, as a creation that was cut off leaves it, gets one by L2: ``MilvusVectorStore``
    would index it by inner product.

    :param client: A connected client.
    :param collection_name: The collection, which exists.
    :param where: Names the collection and its place, for messages.
    :param vector_field: Name of the field that holds the embeddings.
    :param embedding_model: The model whose vectors must be in the collection; None skips the comparison.
    :param timeout: Seconds that a question may take; building an index and loading may take 15 times as long.
    :returns: Length of the vectors.
    :raises VectorStoreError: If there's no such vector field, or another metric.
    :raises EmbeddingModelMismatchError: If the collection was built with another embedding model.
    """
    description = client.describe_collection(collection_name, timeout=timeout)
    dimensions = {field["name"]: field["params"]["dim"] for field in description["fields"] if "dim" in field["params"]}
    if vector_field not in dimensions:
        raise VectorStoreError(f"{where} has no vector field '{vector_field}': {REBUILD}")
    _check_metric(client, collection_name, where, vector_field, timeout)
    # A collection that another process wrote is not loaded until somebody says so.
    client.load_collection(collection_name, timeout=timeout * SLOW_FACTOR)
    if embedding_model is not None:
        rows = client.query(collection_name, filter="", limit=1, output_fields=[keys.EMBEDDING_MODEL], timeout=timeout)
        built_with = rows[0].get(keys.EMBEDDING_MODEL) if rows else None
        if built_with not in {None, embedding_model}:
            raise EmbeddingModelMismatchError(
                f"{where} was built with the embedding model '{built_with}', the settings say "
                f"'{embedding_model}': {REBUILD}"
            )
    return int(dimensions[vector_field])


def _check_metric(client: MilvusClient, collection_name: str, where: str, vector_field: str, timeout: float) -> None:
    indexes = client.list_indexes(collection_name, field_name=vector_field, timeout=timeout)
    if not indexes:
        params = client.prepare_index_params()
        params.add_index(field_name=vector_field, index_type=INDEX_TYPE, metric_type=METRIC)
        client.create_index(collection_name, params, timeout=timeout * SLOW_FACTOR)
        return
    metric = client.describe_index(collection_name, index_name=indexes[0], timeout=timeout)["metric_type"]
    if metric != METRIC:
        raise VectorStoreError(f"{where} is indexed by the metric '{metric}', '{METRIC}' is needed: {REBUILD}")
