"""Whether a text contains a term, at token boundaries."""

import pytest

from knowledge_lookup.retrievers.normal_form import normal_form
from knowledge_lookup.retrievers.term_occurrence import contains_term


@pytest.mark.parametrize(
    ("text", "term", "contained"),
    [
        ("返回ERR_TIMEOUT时", "err_timeout", True),
        ("ERR_TIMEOUT_READ", "err_timeout", False),
        ("ERR_TIMEOUT_READ 与 ERR_TIMEOUT", "err_timeout", True),
        ("max-pool-size", "pool", False),
        ("the pool-", "pool", True),
        ("v2.0.1", "v2.0", False),
        ("v2.0.", "v2.0", True),
        ("redis集群", "redis", True),
        ("rediscover", "redis", False),
        ("支付网关超时了", "超时", True),
        ("C++ 和 C#", "c++", True),
        ("任何文本", "", False),
    ],
)
def test_latin_ends_must_stand_at_a_token_boundary(text: str, term: str, contained: bool) -> None:
    assert contains_term(normal_form(text), term) is contained
