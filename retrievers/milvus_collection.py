"""One Milvus collection: connected and checked on first use, and again where it is gone by the next."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from llama_index.core.vector_stores.utils import DEFAULT_EMBEDDING_KEY
from llama_index.vector_stores.milvus import MilvusVectorStore
from pymilvus import MilvusClient

from knowledge_lookup.retrievers.background import in_background
from knowledge_lookup.retrievers.circuit_breaker import CircuitBreaker
from knowledge_lookup.retrievers.errors import VectorStoreError, VectorStoreTimeoutError, VectorStoreUnavailableError
from knowledge_lookup.retrievers.fork_safety import call_after_fork
from knowledge_lookup.retrievers.milvus_collection_check import (
    INDEX_TYPE,
    METRIC,
    REBUILD,
    SLOW_FACTOR,
    check_collection,
)
from knowledge_lookup.retrievers.milvus_errors import (
    CHECK_SERVER,
    MILVUS_FAILURES,
    is_gone,
    milvus_errors,
    shown_uri,
    translated,
)
from knowledge_lookup.retrievers.milvus_lite import (
    is_milvus_lite,
    leave_milvus_lite_to_the_parent,
    reason_not_opened,
    release_milvus_lite,
    use_milvus_lite,
)
from knowledge_lookup.retrievers.time_spent import time_spent

Answer = TypeVar("Answer")

_GRACE_SECONDS = 0.2
"""The client's own time limits come first where they hold, since its errors say more."""
_SENSELESS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What reading an answer raises that isn't what Milvus answers."""


class MilvusCollection:
    """A collection on Milvus Lite or on a server, safe to use from many threads.

    :param uri: ``http://host:port`` of a server, or a path that ends in ``.db`` for Milvus Lite.
    :param token: ``user:password`` or an API key; empty for none.
    :param name: The collection.
    :param embedding_model: The model whose vectors must be in the collection; None skips the comparison.
    :param consistency_level: What a collection that is made here gets by default.
    :param timeout: Seconds that a question may take, above 0; a change may take 15 times as long.
    """

    def __init__(
        self,
        *,
        uri: str,
        token: str,
        name: str,
        embedding_model: str | None,
        consistency_level: str,
        timeout: float,
    ) -> None:
        if timeout <= 0:
            raise ValueError(f"timeout must be more than 0 seconds, got {timeout}")
        # The folder stays the same one when the working directory changes.
        self.uri = str(Path(uri).expanduser().resolve()) if is_milvus_lite(uri) else uri
        self.name = name
        self.timeout = timeout
        self.slow_timeout = timeout * SLOW_FACTOR
        # Milvus Lite reads its files when it is opened, which takes the longer the more there is; it can't be down.
        self._opening_timeout = self.slow_timeout if is_milvus_lite(uri) else timeout
        self._token = token
        self._embedding_model = embedding_model
        self._consistency_level = consistency_level
        self.given: MilvusVectorStore | None = None
        """A vector store that the application handed over, used instead of a connection of our own."""
        self._lock = threading.RLock()
        self._vector_store: MilvusVectorStore | None = None
        self._dimension: int | None = None
        """Length of the vectors in the open and checked collection; None while it isn't open."""
        self._connected = False
        self._breaker = CircuitBreaker()
        self._inherited: list[MilvusVectorStore] = []
        call_after_fork(self._connect_anew)

    def ask(
        self, verb: str, question: Callable[[MilvusVectorStore], Answer], *, dimension: int | None = None
    ) -> Answer | None:
        """Run a question for which somebody waits, and wait no longer than its time limit.

        The questions inside one ``shared_time`` block share the limit. A server that fails isn't asked again for some
        seconds: the question fails at once. Milvus Lite is in this process, and is waited for.

        :param verb: See :meth:`run`.
        :param question: See :meth:`run`.
        :param dimension: See :meth:`open`.
        :returns: The answer; None if there's no collection.
        :raises VectorStoreTimeoutError: If the answer doesn't come in time.
        :raises VectorStoreUnavailableError: If Milvus can't be reached, answers what can't be understood, or failed a
            moment ago.
        :raises VectorStoreError: See :meth:`open`.
        """
        if is_milvus_lite(self.uri):
            return self.run(verb, question, dimension=dimension)
        refusal = self._breaker.refusal()
        if refusal is not None:
            raise VectorStoreUnavailableError(f"{refusal} (it failed a moment ago, and is tried again in some seconds)")
        given_up = threading.Event()
        try:
            answer = self._in_time(
                verb, lambda: self.run(verb, question, dimension=dimension, given_up=given_up), given_up
            )
        except VectorStoreUnavailableError as error:
            if self._breaker.failed(str(error), timed_out=isinstance(error, VectorStoreTimeoutError)):
                self._disconnect()
            raise
        except VectorStoreError:
            self._breaker.succeeded()  # in answering at all
            raise
        self._breaker.succeeded()
        return answer

    def _in_time(self, verb: str, work: Callable[[], Answer], given_up: threading.Event) -> Answer:
        # The client repeats what fails, and opens a connection anew, past the time limit that it is given.
        spent = time_spent()
        left = self.timeout - spent.seconds
        what = f"Milvus at {shown_uri(self.uri)} could not be {verb}: "
        with spent.waiting():
            answer = in_background(work, name="milvus-question")
            try:
                return answer.result(max(left, 0.0) + _GRACE_SECONDS)
            except TimeoutError as error:
                given_up.set()
                raise VectorStoreTimeoutError(
                    f"{what}no answer within {self.timeout:g} seconds; {CHECK_SERVER}"
                ) from error
            except _SENSELESS as error:
                reason = " ".join(f"{type(error).__name__}: {error}".split())
                raise VectorStoreUnavailableError(
                    f"{what}the answer can't be understood ({reason[:200]}); {CHECK_SERVER}"
                ) from error

    def open(
        self, *, dimension: int | None = None, create: bool = False, given_up: threading.Event | None = None
    ) -> MilvusVectorStore | None:
        """Connect and check the collection, once; later calls return what is open.

        :param dimension: Length of the vectors to be searched or written, compared with the collection's each time;
            needed to create.
        :param create: Create the collection if it doesn't exist.
        :param given_up: Set when nobody waits any more: who gets their turn after that doesn't connect.
        :returns: LlamaIndex's store on the collection; None if there's none and it may not be created.
        :raises VectorStoreUnavailableError: If Milvus can't be reached or another process holds Milvus Lite.
        :raises EmbeddingModelMismatchError: If the collection was built with another embedding model.
        :raises VectorStoreError: If the collection has another metric, or vectors of another length.
        """
        with self._lock:
            if self._dimension is None:
                if given_up is not None and given_up.is_set():
                    raise VectorStoreTimeoutError(f"{self._where} could not be opened in time")
                with milvus_errors("opened", uri=self.uri):
                    self._dimension = self._open(dimension, create)
            if self._dimension is None:
                return None
            if dimension is not None and dimension != self._dimension:
                raise VectorStoreError(
                    f"{self._where} holds vectors of length {self._dimension}, the embedding model gives {dimension}: "
                    f"{REBUILD}"
                )
            return self._vector_store

    def run(
        self,
        verb: str,
        operation: Callable[[MilvusVectorStore], Answer],
        *,
        dimension: int | None = None,
        create: bool = False,
        given_up: threading.Event | None = None,
    ) -> Answer | None:
        """Run an operation on the collection; where it was open but is gone by now, once more on what is there then.

        :param verb: What the operation does, as a past participle, for messages.
        :param operation: Gets LlamaIndex's store on the open collection.
        :param dimension: See :meth:`open`.
        :param create: See :meth:`open`.
        :param given_up: See :meth:`open`.
        :returns: The operation's answer; None if there's no collection and it may not be created.
        :raises VectorStoreError: See :meth:`open`; also if the operation fails.
        """
        vector_store = self.open(dimension=dimension, create=create, given_up=given_up)
        if vector_store is None:
            return None
        try:
            return operation(vector_store)
        except MILVUS_FAILURES as error:
            if not is_gone(error, uri=self.uri):
                raise translated(error, verb, uri=self.uri) from error
        with self._lock:
            if self._vector_store is vector_store:
                self._forget()
        vector_store = self.open(dimension=dimension, create=create, given_up=given_up)
        if vector_store is None:
            return None
        with milvus_errors(verb, uri=self.uri):
            return operation(vector_store)

    def drop(self) -> None:
        """Delete the collection, whatever model or metric it was built with.

        :raises VectorStoreUnavailableError: If Milvus doesn't answer.
        """
        with self._lock, milvus_errors("dropped", uri=self.uri), self._client() as client:
            self._forget()
            client.drop_collection(self.name, timeout=self.slow_timeout)

    def close(self) -> None:
        """Disconnect, and release Milvus Lite's lock so that other processes may open the folder.

        A vector store that the application handed over stays open.
        """
        with self._lock:
            self._forget()
            if self._connected and is_milvus_lite(self.uri):
                release_milvus_lite(self.uri)
            self._connected = False

    def _open(self, dimension: int | None, create: bool) -> int | None:
        with self._client() as client:
            exists = client.has_collection(self.name, timeout=self._opening_timeout)
            if exists:
                dimension = check_collection(
                    client,
                    self.name,
                    where=self._where,
                    vector_field=DEFAULT_EMBEDDING_KEY if self.given is None else self.given.embedding_field,
                    embedding_model=self._embedding_model,
                    timeout=self._opening_timeout,
                )
        if not exists and not create:
            return None
        if not exists and self.given is not None:
            raise VectorStoreError(f"{self._where} was dropped: build a new MilvusVectorStore, which makes it")
        self._vector_store = self.given or self._new_vector_store(dimension)
        return dimension

    def _new_vector_store(self, dimension: int | None) -> MilvusVectorStore:
        return MilvusVectorStore(
            uri=self.uri,
            token=self._token,
            collection_name=self.name,
            dim=dimension,
            similarity_metric=METRIC,
            index_config={"index_type": INDEX_TYPE},
            consistency_level=self._consistency_level,
            upsert_mode=True,
            use_async_client=False,
            **self._client_options,
        )

    @contextmanager
    def _client(self) -> Iterator[MilvusClient]:
        if self.given is not None:
            yield self.given.client
            return
        try:
            if is_milvus_lite(self.uri):
                if not self._connected:
                    use_milvus_lite(self.uri)
                Path(self.uri).parent.mkdir(parents=True, exist_ok=True)
            self._connected = True
            client = MilvusClient(uri=self.uri, token=self._token, **self._client_options)
        except OSError as error:
            raise reason_not_opened(self.uri) from error
        except ValueError as error:
            raise VectorStoreError(f"milvus.uri {shown_uri(self.uri)} is no valid address: {error}") from error
        try:
            yield client
        finally:
            client.close()

    @property
    def _client_options(self) -> dict[str, Any]:
        # pymilvus shares connections between all clients of an address: one of our own has our options and ends
        # with close(). Milvus Lite is in this process, but gRPC would ask a proxy for it.
        options = {"grpc.enable_http_proxy": 0} if is_milvus_lite(self.uri) else {}
        return {"timeout": self._opening_timeout, "dedicated": True, "grpc_options": options}

    def _connect_anew(self) -> None:
        """Forget in a forked child the connection, which is its parent's."""
        self._lock = threading.RLock()
        if self.given is None and self._vector_store is not None:
            self._inherited.append(self._vector_store)  # not closed: gRPC would wait for threads that aren't there
        self._vector_store, self._dimension, self._connected = None, None, False
        leave_milvus_lite_to_the_parent()

    def _disconnect(self) -> None:
        """Have the next question connect anew, unless another thread is at it."""
        if self._lock.acquire(blocking=False):
            try:
                self._forget()
            finally:
                self._lock.release()

    def _forget(self) -> None:
        if self.given is None and self._vector_store is not None:
            self._vector_store.client.close()
        self._vector_store = None
        self._dimension = None

    @property
    def _where(self) -> str:
        return f"collection '{self.name}' at {shown_uri(self.uri)}"
