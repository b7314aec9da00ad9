"""A small server that speaks the OpenAI chat-completions protocol, streaming included. Standard library only:
as a program, `python openai_server.py PORT SCENES.json`, it also runs in a pod (see model_pod.py)."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Answer:
    """`text`, word by word, or a tool call; `refuse` is an HTTP status instead, `silent`: no answer."""

    text: str = ""
    tool_call: Mapping[str, Any] | None = None
    refuse: int | None = None
    silent: bool = False


@dataclass(frozen=True, slots=True)
class Scene:
    """What the model of one name answers, request by request; the last answer stays.

    With `key` whoever brings another one is refused with 401, and no answer is used up.
    """

    answers: Sequence[Answer]
    key: str | None = None

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Self:
        """From `{"answers": [{...}], "key": ...}`."""
        return cls([Answer(**answer) for answer in told["answers"]], told.get("key"))


@dataclass(slots=True)
class OpenAIServer:
    """Plays `scenes` by the model's name; a model without one gets what the fields say, as in Answer."""

    text: str = "hello from the server"
    tool_call: Mapping[str, Any] | None = None
    refuse: int | None = None
    silent: bool = False
    scenes: Mapping[str, Scene] = field(default_factory=dict)
    played: dict[str, int] = field(default_factory=dict)
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
        server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
        made.port = server.sockets[0].getsockname()[1]
        try:
            yield made
        finally:
            server.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = {name.lower(): value for name, _, value in (h.partition(": ") for h in head[1:])}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                self.requests.append(json.loads(body))
                self.keys.append(headers.get("authorization", ""))
                answer = self._next(str(self.requests[-1].get("model")), self.keys[-1])
                if answer.silent:
                    await reader.read()  # until the client has had enough
                    return
                writer.write(_body(answer, streamed=bool(self.requests[-1].get("stream"))))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has closed its connection
        finally:
            writer.close()

    def _next(self, model: str, authorization: str) -> Answer:
        scene = self.scenes.get(model)
        if scene is None:
            return Answer(self.text, self.tool_call, self.refuse, self.silent)
        if scene.key is not None and authorization != f"Bearer {scene.key}":
            return Answer(refuse=401)
        turn = self.played.get(model, 0)
        self.played[model] = turn + 1
        return scene.answers[min(turn, len(scene.answers) - 1)]


def _body(answer: Answer, *, streamed: bool) -> bytes:
    if answer.refuse is not None:
        error = {"error": {"message": f"refused with {answer.refuse}", "type": "t", "code": "c"}}
        return _http(answer.refuse, "application/json", json.dumps(error).encode())
    message: dict[str, Any] = {"role": "assistant", "content": answer.text}
    if answer.tool_call is not None:
        message = {"role": "assistant", "content": None, "tool_calls": [{**answer.tool_call, "index": 0}]}
    finish = "tool_calls" if answer.tool_call else "stop"
    if streamed:
        return _http(200, "text/event-stream", _stream(message, finish))
    choice = {"index": 0, "message": message, "finish_reason": finish}
    whole = {**_frame("chat.completion"), "choices": [choice], "usage": _USAGE}
    return _http(200, "application/json", json.dumps(whole).encode())


def _stream(message: dict[str, Any], finish: str) -> bytes:
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


async def _play(port: int, scenes: Mapping[str, Scene]) -> None:
    server = await asyncio.start_server(OpenAIServer(scenes=scenes).serve, "0.0.0.0", port)
    async with server:
        await server.serve_forever()


def main() -> None:
    told = json.loads(Path(sys.argv[2]).read_text())
    asyncio.run(_play(int(sys.argv[1]), {model: Scene.of(scene) for model, scene in told.items()}))


if __name__ == "__main__":
    main()
