"""Embeddings as unit vectors."""

import math

import pytest

from knowledge_lookup.retrievers import EmbeddingError
from knowledge_lookup.retrievers.unit_vector import embedding_errors, unit_vector


def test_a_longer_vector_is_brought_to_length_one() -> None:
    assert unit_vector([3.0, 4.0], model_name="m") == [0.6, 0.8]


def test_a_unit_vector_is_left_as_it_is() -> None:
    assert unit_vector([0.6, 0.8], model_name="m") == [0.6, 0.8]


@pytest.mark.parametrize("vector", [[], [0.0, 0.0], [math.nan, 1.0], [math.inf, 1.0]])
def test_a_vector_without_direction_is_refused_with_the_model_named(vector: list[float]) -> None:
    with pytest.raises(EmbeddingError, match=r"embedding model 'bge' returned .* check the model"):
        unit_vector(vector, model_name="bge")


def test_what_a_provider_raises_becomes_one_error_with_its_cause() -> None:
    with (
        pytest.raises(EmbeddingError, match=r"embedding model .bge. failed .ConnectionError: refused.") as caught,
        embedding_errors("bge"),
    ):
        raise ConnectionError("refused")
    assert isinstance(caught.value.__cause__, ConnectionError)
