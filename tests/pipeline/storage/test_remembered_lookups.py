"""One contract for every store of the action memory, in memory, in SQLite, in MariaDB: look-ups that are remembered."""

import threading
from concurrent.futures import ThreadPoolExecutor

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from knowledge_lookup.agents.action_memory_store import LOOKUPS_KEPT_WITHOUT_TEXT, ActionMemoryStore
from knowledge_lookup.agents.session_memory import DeliveredText, RememberedLookup, packed
from knowledge_lookup.postprocessors import RelevanceLevel
from knowledge_lookup.retrievers.text_span import TextSpan
from tests.pipeline.storage.action_memory import TTL, Clock, StoreFactory, documents, domains, looked_up, text_of

EVERYTHING = RememberedLookup(
    number=1,
    question="0123456789abcdef",
    corpus="fedcba9876543210",
    outcome="delivered",
    delivered=(
        text_of("支付/a.md", "概述", "重试 > 示例", domain="支付", spans=[(0, 12), (40, 41)]),
        text_of("b.md", way="semantic", domain="infra"),
        text_of("c.md", "🙂 'quoted' \"twice\" \\ \n", way="section", spans=[(2**40, 2**40 + 1)]),
    ),
    withheld=("d.md", "delivered"),
    characters=1234,
    level=RelevanceLevel.HIGHLY_RELEVANT,
    matched="ffff",
    embedding=bytes(range(256)) * 3,
)


def numbers(store: ActionMemoryStore, session_id: str) -> list[int]:
    return [lookup.number for lookup in store.recall(session_id).lookups]


def test_look_ups_come_back_as_they_were_in_their_order(store: ActionMemoryStore) -> None:
    vector = [0.1 * number for number in range(8)]
    poor = RememberedLookup(number=2, question="q", corpus="c", outcome="withheld", embedding=packed(vector))
    refused = RememberedLookup(number=3, question="", corpus="", outcome="refused", embedding=b"")
    for lookup in (EVERYTHING, poor, refused):
        assert store.remember("s1", lookup) is True
    memory = store.recall("s1")
    assert memory.lookups == (EVERYTHING, poor, refused)
    assert memory.next_number == 4
    assert isinstance(memory.lookups[0].delivered[0].spans[0], TextSpan)


def test_a_look_up_claims_what_it_delivers(store: ActionMemoryStore) -> None:
    store.remember("s1", EVERYTHING)
    assert documents(store, "s1") == {"支付/a.md", "b.md", "c.md"}
    assert domains(store, "s1") == ["支付", "infra", "api"]
    assert store.claim("s1", "支付", "支付/a.md") is False
    # Of these only parts were delivered.
    assert store.claim("s1", "infra", "b.md") is True
    assert store.claim("s1", "api", "c.md") is True
    memory = store.recall("s1")
    assert memory.whole == {"b.md", "c.md"}
    assert memory.is_matched_exactly("支付/a.md")


def test_of_two_look_ups_decided_on_the_same_memory_one_is_recorded(store: ActionMemoryStore) -> None:
    assert store.remember("s1", looked_up(1, text_of("a.md"))) is True
    assert store.remember("s1", looked_up(1, text_of("b.md"))) is False
    assert store.remember("s1", looked_up(2, text_of("b.md"))) is True
    assert store.remember("s1", looked_up(1)) is False
    assert numbers(store, "s1") == [1, 2]
    assert documents(store, "s1") == {"a.md", "b.md"}


def test_a_look_up_whose_text_was_claimed_meanwhile_is_refused_and_leaves_nothing(store: ActionMemoryStore) -> None:
    store.remember("s1", looked_up(1, text_of("a.md")))
    store.claim("s1", "infra", "b.md")
    before = store.recall("s1")
    late = looked_up(2, text_of("new.md", domain="other"), text_of("b.md"), text_of("newer.md"))
    assert store.remember("s1", late) is False
    after = store.recall("s1")
    assert after.lookups == before.lookups
    assert (after.documents, after.domains) == (before.documents, before.domains)
    # Neither its number nor the texts beside the claimed one are taken.
    assert store.remember("s1", looked_up(2, text_of("new.md"), text_of("newer.md"))) is True


def test_sessions_have_look_ups_of_their_own(store: ActionMemoryStore) -> None:
    sessions = ["s1", "S1", "s1 ", "\ud800", "\0", "x" * 1000]
    for session in sessions:
        assert store.remember(session, looked_up(1, text_of("a.md"))) is True
    store.remember("s1", looked_up(2))
    store.clear("S1")
    assert [numbers(store, session) for session in sessions] == [[1, 2], [], [1], [1], [1], [1]]


def test_a_cleared_session_forgets_its_look_ups_and_counts_anew(store: ActionMemoryStore) -> None:
    for number in (1, 2):
        store.remember("s1", looked_up(number, text_of(f"{number}.md")))
    store.clear("s1")
    memory = store.recall("s1")
    assert (memory.lookups, memory.documents, memory.next_number) == ((), frozenset(), 1)
    assert store.remember("s1", looked_up(1, text_of("2.md"))) is True


def test_a_session_of_look_ups_without_text_expires_like_any_other(store: ActionMemoryStore, clock: Clock) -> None:
    store.remember("s1", looked_up(1))
    clock.now += TTL
    assert numbers(store, "s1") == [1]
    clock.now += TTL + 1
    assert numbers(store, "s1") == []


def test_expired_look_ups_neither_block_new_ones_nor_come_back_with_them(
    store: ActionMemoryStore, clock: Clock
) -> None:
    for number in (1, 2, 3):
        store.remember("s1", looked_up(number, text_of(f"{number}.md")))
    clock.now += TTL + 1
    assert store.remember("s1", looked_up(1, text_of("3.md"))) is True
    assert numbers(store, "s1") == [1]
    assert documents(store, "s1") == {"3.md"}
    clock.now += TTL + 1
    assert store.claim("s1", "api", "3.md") is True
    assert numbers(store, "s1") == []


def test_look_ups_without_text_are_forgotten_in_the_end_and_others_stay(store: ActionMemoryStore) -> None:
    last = LOOKUPS_KEPT_WITHOUT_TEXT + 3
    for number in range(1, last + 1):
        texts = [text_of(f"{number}.md")] if number in {2, 50} else []
        assert store.remember("s1", looked_up(number, *texts)) is True
    assert numbers(store, "s1") == [2, *range(4, last + 1)]
    assert documents(store, "s1") == {"2.md", "50.md"}
    assert store.recall("s1").next_number == last + 1


def test_32_threads_that_decide_again_when_overtaken_are_all_recorded_and_each_text_once(
    make_store: StoreFactory,
) -> None:
    stores = [make_store() for _ in range(4)]
    start = threading.Barrier(32)

    def look_up(thread: int) -> tuple[int, bool]:
        store, path = stores[thread % 4], f"{thread % 8}.md"
        start.wait(30)
        while True:
            memory = store.recall("s1")
            is_new = path not in memory.documents
            lookup = looked_up(memory.next_number, *([text_of(path)] if is_new else []))
            if store.remember("s1", lookup):
                return lookup.number, is_new

    with ThreadPoolExecutor(32) as threads:
        outcomes = list(threads.map(look_up, range(32)))
    assert sorted(number for number, _ in outcomes) == list(range(1, 33))
    assert sum(is_new for _, is_new in outcomes) == 8
    memory = stores[0].recall("s1")
    assert [lookup.number for lookup in memory.lookups] == list(range(1, 33))
    assert sorted(text.file_path for lookup in memory.lookups for text in lookup.delivered) == [
        f"{number}.md" for number in range(8)
    ]


def test_of_32_threads_that_decided_on_the_same_memory_one_is_recorded(make_store: StoreFactory) -> None:
    stores = [make_store() for _ in range(4)]
    start = threading.Barrier(32)

    def look_up(thread: int) -> bool:
        start.wait(30)
        return stores[thread % 4].remember("s1", looked_up(1, text_of(f"{thread}.md"), text_of("common.md")))

    with ThreadPoolExecutor(32) as threads:
        recorded = list(threads.map(look_up, range(32)))
    assert sorted(recorded) == [False] * 31 + [True]
    assert documents(stores[0], "s1") == {f"{recorded.index(True)}.md", "common.md"}


def test_look_ups_and_claims_of_the_same_documents_at_once_give_each_to_one(make_store: StoreFactory) -> None:
    paths = [f"{number}.md" for number in range(10)]
    start = threading.Barrier(6)

    def take(thread: int) -> list[str]:
        store = make_store()
        start.wait(30)
        if thread % 2:
            return [path for path in reversed(paths) if store.claim("s1", "api", path)]
        taken: list[str] = []
        while True:
            memory = store.recall("s1")
            free = [path for path in paths if path not in memory.documents][:3]
            if not free:
                return taken
            if store.remember("s1", looked_up(memory.next_number, *map(text_of, free))):
                taken += free

    with ThreadPoolExecutor(6) as threads:
        taken = list(threads.map(take, range(6)))
    assert sorted(path for some in taken for path in some) == paths


class Model:
    """The contract in the plainest words."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        # Claims as (file path, part), with their domains; look-ups in order.
        self.sessions: dict[str, tuple[dict[tuple[str, str], str], list[RememberedLookup]]] = {}
        self.last_use: dict[str, float] = {}

    def use(self, session: str) -> tuple[dict[tuple[str, str], str], list[RememberedLookup]]:
        if self.last_use.get(session, self.clock.now) < self.clock.now - TTL:
            self.sessions.pop(session, None)
        self.last_use[session] = self.clock.now
        return self.sessions.setdefault(session, ({}, []))

    def claim(self, session: str, domain: str, path: str) -> bool:
        claims, _ = self.use(session)
        if (path, "") in claims:
            return False
        claims[(path, "")] = domain
        return True

    def remember(self, session: str, lookup: RememberedLookup) -> bool:
        claims, lookups = self.use(session)
        if lookups and lookup.number <= lookups[-1].number:
            return False
        if any(text.way == "exact" and (text.file_path, "") in claims for text in lookup.delivered):
            return False
        for text in lookup.delivered:
            part = "" if text.way == "exact" else f"part of {lookup.number}"
            claims[(text.file_path, part)] = text.domain
        lookups.append(lookup)
        return True


session_ids = st.sampled_from(["s1", "s1 ", "\ud800"])
paths = st.sampled_from(["a.md", "b.md", "b"])
domain_names = st.sampled_from(["api", "infra", "支付"])
texts = st.builds(
    DeliveredText,
    domain=domain_names,
    file_path=paths,
    version=st.just("v1"),
    way=st.sampled_from(["exact", "semantic", "section"]),
    sections=st.sampled_from([(), ("Retries",), ("Retries", "概述")]),
    spans=st.sampled_from([(), (TextSpan(0, 5),), (TextSpan(5, 9), TextSpan(20, 30))]),
)
deliveries = st.lists(texts, max_size=2, unique_by=lambda text: text.file_path)
steps = st.one_of(
    st.tuples(st.just("claim"), session_ids, domain_names, paths),
    # How far the number is from the next one: below 0 somebody was faster; above, the session was cleared meanwhile.
    st.tuples(st.just("remember"), session_ids, st.sampled_from([-1, 0, 0, 0, 0, 2]), deliveries),
    st.tuples(st.just("remember"), session_ids, st.just(0), deliveries),
    st.tuples(st.just("read"), session_ids),
    st.tuples(st.just("clear"), session_ids),
    # A read less than a twentieth of the time to live after the last use may count or not, so there is none.
    st.tuples(st.just("wait"), st.sampled_from([0.0, 6.0, 60.0, TTL, TTL + 1])),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=st.lists(steps, max_size=25))
def test_a_store_behaves_like_a_plain_dictionary(
    make_store: StoreFactory, clock: Clock, history: list[tuple[object, ...]]
) -> None:
    clock.now += 10 * TTL  # what the example before this one left behind has expired
    store, model = make_store(), Model(clock)
    for step in history:
        match step:
            case ("claim", str(session), str(domain), str(path)):
                assert store.claim(session, domain, path) is model.claim(session, domain, path)
            case ("remember", str(session), int(offset), list(delivered)):
                _, known = model.use(session)
                following = known[-1].number + 1 if known else 1
                lookup = looked_up(max(following + offset, 1), *delivered)
                assert store.remember(session, lookup) is model.remember(session, lookup)
            case ("read", str(session)):
                claims, lookups = model.use(session)
                memory = store.recall(session)
                assert memory.lookups == tuple(lookups)
                assert memory.domains == tuple(dict.fromkeys(claims.values()))
                assert memory.documents == {path for path, _ in claims}
            case ("clear", str(session)):
                store.clear(session)
                model.sessions.pop(session, None)
            case ("wait", float(seconds)):
                clock.now += seconds
            case unknown:
                raise AssertionError(unknown)
