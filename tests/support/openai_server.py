"""A small server that speaks the OpenAI chat-completions protocol, streaming included."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(slots=True)
class OpenAIServer:
    """Answers `text`, word by word; `refuse` is an HTTP status to answer instead, `silent`: no answer."""

    text: str = "hello from the server"
    tool_call: dict[str, Any] | None = None
    refuse: int | None = None
    silent: bool = False
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @classmethod
    @asynccontextmanager
    async def running(cls) -> AsyncIterator[Self]:
        made = cls()
        server = await asyncio.start_server(made._serve, "127.0.0.1", 0)
        made.port = server.sockets[0].getsockname()[1]
        try:
            yield made
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = {name.lower(): value for name, _, value in (h.partition(": ") for h in head[1:])}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                self.requests.append(json.loads(body))
                self.keys.append(headers.get("authorization", ""))
                if self.silent:
                    await asyncio.sleep(3600)
                writer.write(self._answer(self.requests[-1]))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has closed its connection
        finally:
            writer.close()

    def _answer(self, request: dict[str, Any]) -> bytes:
        if self.refuse is not None:
            error = {"error": {"message": f"refused with {self.refuse}", "type": "t", "code": "c"}}
            return _http(self.refuse, "application/json", json.dumps(error).encode())
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.tool_call is not None:
            message = {"role": "assistant", "content": None, "tool_calls": [{**self.tool_call, "index": 0}]}
        finish = "tool_calls" if self.tool_call else "stop"
        if request.get("stream"):
            return _http(200, "text/event-stream", self._stream(message, finish))
        choice = {"index": 0, "message": message, "finish_reason": finish}
        answer = {**_frame("chat.completion"), "choices": [choice], "usage": _USAGE}
        return _http(200, "application/json", json.dumps(answer).encode())

    def _stream(self, message: dict[str, Any], finish: str) -> bytes:
        words = str(message["content"]).split(" ") if message["content"] else []
        deltas = [{"content": word if n == 0 else f" {word}"} for n, word in enumerate(words)]
        frames: list[dict[str, Any]] = [{"delta": {"role": "assistant", "content": ""}}]
        frames += [{"delta": delta} for delta in deltas]
        if message.get("tool_calls"):
            frames.append({"delta": {"tool_calls": message["tool_calls"]}})
        frames.append({"delta": {}, "finish_reason": finish})
        chunks = [
            {**_frame("chat.completion.chunk"), "choices": [{"index": 0, "finish_reason": None, **frame}]}
            for frame in frames
        ]
        chunks.append({**_frame("chat.completion.chunk"), "choices": [], "usage": _USAGE})
        return b"".join(f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks) + b"data: [DONE]\n\n"


_USAGE = {"prompt_tokens": 11, "completion_tokens": 4, "total_tokens": 15}


def _frame(kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": 1, "model": "tiny-1"}


def _http(status: int, kind: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
