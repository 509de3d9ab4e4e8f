"""From which similarity on two queries of a session ask nearly the same, for each embedding model."""

from collections.abc import Mapping

from knowledge_lookup.pipeline.models.nano_e5_embedding import MODEL_NAME as NANO_E5

_SAME_QUESTION: Mapping[str, float] = {
    # Of different questions about one paragraph of XQuAD 9 % (zh) and 5 % (en) reach it, of questions about two
    # paragraphs of one article 0.4 % and 0.1 %. Rewordings of one question reach it in one of ten.
    NANO_E5: 0.94,
}


def same_question_similarity(embedding_model: str) -> float | None:
    """Give the bound for a model.

    :param embedding_model: The model's name.
    :returns: Cosine of two query vectors, 0 to 1; None for a model that it wasn't measured for, whose queries are then
        never taken for nearly the same.
    """
    return _SAME_QUESTION.get(embedding_model)
