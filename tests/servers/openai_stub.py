"""A language model stand-in behind a real OpenAI-compatible HTTP endpoint: scripted replies and a history."""

import json
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Fault(Enum):
    """Other ways to fail than with an HTTP status."""

    HTML = "a page instead of an answer, as of a proxy's login"
    EMPTY = "an empty body"
    RESET = "the connection is reset before the answer"
    HALF = "the connection is lost in the middle of the answer"


Reply = str | int | Fault
"""Text of the assistant's message, an HTTP status to fail with, or another failure."""


class OpenAIStub:
    """What the endpoint says and what it was asked."""

    def __init__(self) -> None:
        self.replies: deque[Reply] = deque()
        self.answer: Callable[[list[dict[str, str]]], Reply] | None = None
        """Called with the messages when no scripted reply is left."""
        self.embed: Callable[[str], list[float]] | None = None
        self.requests: list[dict[str, Any]] = []
        self.delay_seconds = 0.0
        self.finish_reason = "stop"
        self.base_url = ""

    def last_messages(self) -> list[dict[str, str]]:
        """The messages of the latest chat request."""
        messages: list[dict[str, str]] = self.requests[-1]["messages"]
        return messages

    def next_reply(self, messages: list[dict[str, str]]) -> Reply:
        """Take the next scripted reply."""
        if self.replies:
            return self.replies.popleft()
        if self.answer is not None:
            return self.answer(messages)
        return "Thought: done\nAnswer: no reply is scripted"


@contextmanager
def openai_stub() -> Iterator[OpenAIStub]:
    """Serve a stub on a free local port while the block runs."""
    stub = OpenAIStub()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            stub.requests.append(request)
            time.sleep(stub.delay_seconds)
            if self.path.endswith("/embeddings"):
                self._embeddings(request)
            else:
                self._chat(request)

        def _embeddings(self, request: dict[str, Any]) -> None:
            assert stub.embed is not None
            texts = request["input"] if isinstance(request["input"], list) else [request["input"]]
            data = [{"object": "embedding", "index": n, "embedding": stub.embed(t)} for n, t in enumerate(texts)]
            usage = {"prompt_tokens": 1, "total_tokens": 1}
            self._json({"object": "list", "data": data, "model": request["model"], "usage": usage})

        def _chat(self, request: dict[str, Any]) -> None:
            reply = stub.next_reply(request["messages"])
            if isinstance(reply, Fault):
                self._fail(reply, is_stream=bool(request.get("stream")))
            elif isinstance(reply, int):
                self._json({"error": {"message": "scripted failure"}}, status=reply)
            elif request.get("stream"):
                self._stream(request["model"], reply)
            else:
                message = {"role": "assistant", "content": reply}
                choice = {"index": 0, "message": message, "finish_reason": stub.finish_reason}
                self._json({**_envelope(request["model"], "chat.completion"), "choices": [choice]})

        def _stream(self, model: str, reply: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            half = len(reply) // 2
            deltas = [{"role": "assistant", "content": reply[:half]}, {"content": reply[half:]}]
            for delta in deltas:
                choice = {"index": 0, "delta": delta, "finish_reason": None}
                self._event({**_envelope(model, "chat.completion.chunk"), "choices": [choice]})
            last = {"index": 0, "delta": {}, "finish_reason": stub.finish_reason}
            self._event({**_envelope(model, "chat.completion.chunk"), "choices": [last]})
            self.wfile.write(b"data: [DONE]\n\n")

        def _fail(self, fault: Fault, *, is_stream: bool) -> None:
            if fault is Fault.RESET:
                # Closed with what was read unanswered, a connection that lingers for no time is reset.
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
                return
            bodies = {
                Fault.HTML: ("text/html", b"<html><body>Please sign in</body></html>"),
                Fault.EMPTY: ("text/event-stream" if is_stream else "application/json", b""),
                Fault.HALF: ("text/event-stream" if is_stream else "application/json", _half_answer(is_stream)),
            }
            kind, body = bodies[fault]
            self.send_response(200)
            self.send_header("Content-Type", kind)
            # More is promised than comes where the connection is lost.
            self.send_header("Content-Length", str(len(body) + (1000 if fault is Fault.HALF else 0)))
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = True

        def _event(self, value: dict[str, Any]) -> None:
            self.wfile.write(f"data: {json.dumps(value)}\n\n".encode())

        def _json(self, value: dict[str, Any], *, status: int = 200) -> None:
            body = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Keep the test output clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    stub.base_url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _half_answer(is_stream: bool) -> bytes:
    text = "Thought: done\nAnswer: 先查"
    if not is_stream:
        return json.dumps({**_envelope("stub", "chat.completion"), "choices": [text]}).encode()[:-5]
    choice = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
    return f"data: {json.dumps({**_envelope('stub', 'chat.completion.chunk'), 'choices': [choice]})}\n\n".encode()


def _envelope(model: str, kind: str) -> dict[str, Any]:
    return {"id": "stub", "object": kind, "created": 0, "model": model}
