"""A language model stand-in behind a real OpenAI-compatible HTTP endpoint: scripted replies and a history."""

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = str | int
"""Text of the assistant's message, or an HTTP status to fail with."""


class OpenAIStub:
    """What the endpoint says and what it was asked."""

    def __init__(self) -> None:
        self.replies: deque[Reply] = deque()
        self.answer: Callable[[list[dict[str, str]]], Reply] | None = None
        """Called with the messages when no scripted reply is left."""
        self.embed: Callable[[str], list[float]] | None = None
        self.requests: list[dict[str, Any]] = []
        self.delay_seconds = 0.0
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
            if isinstance(reply, int):
                self._json({"error": {"message": "scripted failure"}}, status=reply)
            elif request.get("stream"):
                self._stream(request["model"], reply)
            else:
                message = {"role": "assistant", "content": reply}
                choice = {"index": 0, "message": message, "finish_reason": "stop"}
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
            last = {"index": 0, "delta": {}, "finish_reason": "stop"}
            self._event({**_envelope(model, "chat.completion.chunk"), "choices": [last]})
            self.wfile.write(b"data: [DONE]\n\n")

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


def _envelope(model: str, kind: str) -> dict[str, Any]:
    return {"id": "stub", "object": kind, "created": 0, "model": model}
