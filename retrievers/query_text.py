"""How much of a query is read."""

MOST_QUERY_CHARACTERS = 8_000
"""The keyword index matches the first 2,000, an embedding model reads some hundred tokens; what lies behind them both
costs time and memory alone."""


def readable_query(query: str) -> str:
    """Take of a query what a look-up reads, so that a pasted log of megabytes costs no more than a long question.

    :param query: The query as it was asked.
    :returns: The query itself; of one that is longer than 8,000 characters the first 8,000, with single spaces for its
        white space.
    """
    if len(query) <= MOST_QUERY_CHARACTERS:
        return query
    # White space is no way to hide what else is asked: an exact match may only be decisive for the whole query.
    return " ".join(query.split())[:MOST_QUERY_CHARACTERS]
