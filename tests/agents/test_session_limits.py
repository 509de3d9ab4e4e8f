"""Limits of a session: look-ups, look-ups in a domain, characters."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from shutil import copytree
from threading import Barrier
from typing import Any

import pytest

from knowledge_lookup.agents import LookupResult
from knowledge_lookup.pipeline import KnowledgePipeline
from tests.agents.manuals import SAY, contents, reasons, section
from tests.agents.topics import TopicEmbedding, topic_settings
from tests.knowledge_bases import document, write_documents

THREADS = 32
SENTENCE = "这条说明解释一个错误码的含义与处理方法。"
DOCUMENTS = {
    **{
        f"many/{number}.md": document(
            f"## 含义\n\n{SENTENCE * 20}\n\n## 处理\n\n{SENTENCE * 20}",
            title=f"T{number}",
            keywords=f"[CODE_{number:02}]",
        ).replace("---\n", "---\ncategory: many\n", 1)
        for number in range(THREADS)
    },
    "other/a.md": document(
        f"话题甲：另一个领域。{SENTENCE * 10}", title="其他", keywords="[OTHER_KEY]", category="other"
    ),
    "many/topic.md": document(f"话题甲：同一个领域。{SENTENCE * 10}", title="题目", category="many"),
}

Opener = Callable[..., AbstractContextManager[KnowledgePipeline]]


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with the documents and their index; copy it, don't open it."""
    folder = tmp_path_factory.mktemp("indexed")
    write_documents(folder / "docs", DOCUMENTS)
    settings = topic_settings(folder / "docs", folder / "data")
    with KnowledgePipeline.from_settings(settings, embed_model=TopicEmbedding()) as pipeline:
        pipeline.sync()
    return folder


@pytest.fixture
def limited(indexed: Path, tmp_path: Path) -> Opener:
    """Give a function that opens a pipeline with settings of the session."""
    folder = Path(copytree(indexed, tmp_path / "limited"))

    def opened(**session: Any) -> AbstractContextManager[KnowledgePipeline]:
        settings = topic_settings(folder / "docs", folder / "data", **session)
        return KnowledgePipeline.from_settings(settings, embed_model=TopicEmbedding())

    return opened


def at_once(pipeline: KnowledgePipeline, queries: list[str]) -> list[LookupResult]:
    barrier = Barrier(len(queries))

    def look_up(query: str) -> LookupResult:
        barrier.wait(30)
        return pipeline.lookup(query, session_id="s1")

    with ThreadPoolExecutor(len(queries)) as threads:
        return list(threads.map(look_up, queries))


CODES = [f"CODE_{number:02}" for number in range(THREADS)]
both_backends = pytest.mark.parametrize("backend", ["memory", "database"])


def test_look_ups_beyond_the_limit_are_refused_and_recorded(limited: Opener) -> None:
    with limited(max_lookups=3) as pipeline:
        results = [pipeline.lookup(query, session_id="s1") for query in ("CODE_00", "话题己", "CODE_00", "CODE_01")]
        results += [section(pipeline, "CODE_02", "含义")]
        assert [result.found for result in results] == [True, False, False, False, False]
        assert results[3].message == SAY.lookup_limit.format(limit=3)
        assert results[4].message == results[3].message
        assert results[3].retrieved_domains_this_session == ("many",)
        assert reasons(pipeline) == [None, None, "DOC_ALREADY_RETRIEVED", "LOOKUP_LIMIT", "LOOKUP_LIMIT"]
        assert pipeline.lookup("CODE_01", session_id="s2").found
        pipeline.memory.clear_session("s1")
        assert pipeline.lookup("CODE_01", session_id="s1").found


def test_a_refused_look_up_needs_neither_the_embedding_model_nor_the_index(limited: Opener) -> None:
    with limited(max_lookups=1) as pipeline:
        pipeline.lookup("CODE_00", session_id="s1")
        model = pipeline.embed_model
        assert isinstance(model, TopicEmbedding)
        model.is_broken = True
        assert not pipeline.lookup("话题甲", session_id="s1").found


def test_a_domain_that_is_used_up_gives_nothing_more_and_others_go_on(limited: Opener) -> None:
    with limited(max_lookups_per_domain=2) as pipeline:
        queries = ["CODE_00", "CODE_01", "CODE_02", "OTHER_KEY", "CODE_03"]
        results = [pipeline.lookup(query, session_id="s1") for query in queries]
        results += [section(pipeline, "CODE_00", "处理"), section(pipeline, "CODE_04", "处理")]
        assert [result.found for result in results] == [True, True, False, True, False, False, False]
        assert results[2].message == SAY.domain_limit.format(domains="many", limit=2)
        limit = "DOMAIN_LIMIT"
        assert reasons(pipeline) == [None, None, limit, None, limit, limit, limit]


def test_of_a_result_from_two_domains_the_one_that_is_used_up_is_left_out(limited: Opener) -> None:
    with limited(max_lookups_per_domain=1) as pipeline:
        pipeline.lookup("CODE_00", session_id="s1")
        result = pipeline.lookup("话题甲", session_id="s1")
        assert "另一个领域" in contents(result)
        assert "同一个领域" not in contents(result)
        assert reasons(pipeline) == [None, "PARTIALLY_FILTERED"]


def test_look_ups_that_find_nothing_do_not_use_a_domain_up(limited: Opener) -> None:
    with limited(max_lookups_per_domain=1) as pipeline:
        for query in ("话题己", "话题戊", "没有的东西"):
            assert not pipeline.lookup(query, session_id="s1").found
        assert pipeline.lookup("CODE_00", session_id="s1").found


@pytest.mark.parametrize("limit", [80, 100, 137, 500, 1500, 3000])
def test_no_session_is_given_more_characters_than_the_limit(limited: Opener, limit: int) -> None:
    with limited(max_characters=limit) as pipeline:
        queries = [query for code in CODES[:6] for query in (code, f"{code} 是什么意思")]
        queries.insert(1, "话题甲")
        results = [pipeline.lookup(query, session_id="s1") for query in queries]
        results += [section(pipeline, "CODE_07", "含义")]
        delivered = [
            part.content for result in results for part in (result.primary, result.supplement) if part is not None
        ]
        assert limit - 80 < sum(map(len, delivered)) <= limit
        assert results[-1].message == SAY.character_limit.format(limit=limit)
        assert reasons(pipeline)[-1] == "CHARACTER_LIMIT"
        assert pipeline.lookup("CODE_09", session_id="s2").found


@pytest.mark.parametrize("limit", range(80, 140, 6))
def test_a_passage_for_which_too_few_characters_are_left_is_no_error(limited: Opener, limit: int) -> None:
    with limited(max_characters=limit) as pipeline:
        result = pipeline.lookup("话题甲", session_id="s1")
        assert len(contents(result)) <= limit


def test_a_section_is_cut_to_the_characters_that_are_left(limited: Opener) -> None:
    with limited(max_characters=300) as pipeline:
        first = section(pipeline, "CODE_00", "含义")
        assert 150 < len(contents(first)) <= 300
        assert section(pipeline, "CODE_00", "含义").found is (len(contents(first)) <= 220)


def test_without_a_session_no_limit_applies(limited: Opener) -> None:
    with limited() as pipeline:
        whole = pipeline.lookup("CODE_00")
    for limit in ({"max_lookups": 1}, {"max_lookups_per_domain": 1}, {"max_characters": 100}, {"max_characters": 10}):
        with limited(**limit) as pipeline:
            assert [pipeline.lookup("CODE_00") for _ in range(3)] == [whole] * 3, limit


@both_backends
def test_of_32_look_ups_at_once_as_many_as_allowed_are_answered(limited: Opener, backend: str) -> None:
    with limited(max_lookups=5, backend=backend) as pipeline:
        results = at_once(pipeline, CODES)
        assert sum(result.found for result in results) == 5
        assert reasons(pipeline).count("LOOKUP_LIMIT") == THREADS - 5


@both_backends
def test_of_32_look_ups_at_once_in_one_domain_as_many_as_allowed_deliver(limited: Opener, backend: str) -> None:
    with limited(max_lookups_per_domain=4, backend=backend) as pipeline:
        results = at_once(pipeline, [*CODES[:-1], "OTHER_KEY"])
        assert results[-1].found
        assert sum(result.found for result in results[:-1]) == 4
        assert reasons(pipeline).count("DOMAIN_LIMIT") == THREADS - 5


@both_backends
def test_32_look_ups_at_once_together_keep_to_the_characters(limited: Opener, backend: str) -> None:
    with limited(max_characters=2500, backend=backend) as pipeline:
        results = at_once(pipeline, CODES)
        delivered = sum(len(contents(result)) for result in results)
        assert 2500 - 80 < delivered <= 2500
        assert reasons(pipeline).count("CHARACTER_LIMIT") == sum(not result.found for result in results) > 0


@both_backends
def test_of_32_threads_that_ask_for_the_parts_of_one_document_each_character_goes_to_one(
    limited: Opener, backend: str
) -> None:
    with limited(backend=backend) as pipeline:
        barrier = Barrier(THREADS)

        def look_up(number: int) -> LookupResult:
            barrier.wait(30)
            title = ("含义", "处理", None)[number % 3]
            return pipeline.lookup("CODE_00" if title else f"CODE_00 {number}", session_id="s1", section_title=title)

        with ThreadPoolExecutor(THREADS) as threads:
            results = list(threads.map(look_up, range(THREADS)))
    characters = [at for result in results for _, start, end in result.passages for at in range(start, end)]
    assert len(characters) == len(set(characters))
    body = DOCUMENTS["many/0.md"].partition("\n---\n")[2]
    assert {at for at in characters if not body[at].isspace()} == {at for at in range(len(body)) if body[at].strip()}
