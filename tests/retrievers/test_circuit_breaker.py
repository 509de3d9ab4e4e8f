"""When it is worth asking what has failed before."""

import pytest

from knowledge_lookup.retrievers.circuit_breaker import PAUSE_SECONDS, TIMEOUTS_IN_A_ROW, CircuitBreaker


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> CircuitBreaker:
    return CircuitBreaker(clock=clock)


def test_as_long_as_nothing_fails_everybody_asks(breaker: CircuitBreaker) -> None:
    breaker.succeeded()
    assert [breaker.refusal() for _ in range(3)] == [None, None, None]


def test_a_failure_without_doubt_keeps_everybody_off_and_says_why(breaker: CircuitBreaker) -> None:
    assert breaker.failed("connection refused", timed_out=False) is True
    assert breaker.refusal() == "connection refused"


def test_a_single_time_out_keeps_nobody_off_but_several_in_a_row_do(breaker: CircuitBreaker) -> None:
    for _ in range(TIMEOUTS_IN_A_ROW - 1):
        assert breaker.failed("too late", timed_out=True) is False
        assert breaker.refusal() is None
    assert breaker.failed("too late", timed_out=True) is True
    assert breaker.refusal() == "too late"


def test_an_answer_between_two_time_outs_counts(breaker: CircuitBreaker) -> None:
    for _ in range(3 * TIMEOUTS_IN_A_ROW):
        breaker.failed("too late", timed_out=True)
        breaker.succeeded()
    assert breaker.refusal() is None


def test_after_a_pause_one_caller_tries_and_the_others_wait_on(breaker: CircuitBreaker, clock: Clock) -> None:
    breaker.failed("away", timed_out=False)
    clock.now += PAUSE_SECONDS - 0.1
    assert breaker.refusal() == "away"
    clock.now += 0.1
    assert [breaker.refusal() for _ in range(3)] == [None, "away", "away"]
    breaker.failed("still away", timed_out=True)
    assert breaker.refusal() == "still away"
    clock.now += PAUSE_SECONDS
    assert breaker.refusal() is None
    breaker.succeeded()
    assert [breaker.refusal() for _ in range(3)] == [None, None, None]


def test_a_try_that_never_comes_back_is_followed_by_another(breaker: CircuitBreaker, clock: Clock) -> None:
    breaker.failed("away", timed_out=False)
    clock.now += PAUSE_SECONDS
    assert breaker.refusal() is None
    clock.now += PAUSE_SECONDS
    assert breaker.refusal() is None
