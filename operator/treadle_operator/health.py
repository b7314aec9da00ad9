"""Whether the operator lives and is ready, and the small HTTP server that says so.

Alive: the event loop is not late and no key of the queue has waited or worked too long; a failing /healthz
makes the kubelet restart the pod. Ready: store and API server answered lately and the schema is known; a
standby is ready too.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from aiohttp import web
from prometheus_client import exposition

from treadle_operator.metrics import Metrics

LOOP_LAG_LIMIT: Final = 10.0
OLDEST_KEY_LIMIT: Final = 300.0
_BEAT: Final = 1.0


class Health:
    """`clock` is monotonic. Parts report troubles by name; an empty sentence takes the trouble back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._troubles: dict[str, str] = {}
        self._beat_at = clock()
        self.lag = 0.0
        self.oldest_key: Callable[[], float] = lambda: 0.0

    def trouble(self, part: str, sentence: str) -> bool:
        """Notes or (empty sentence) clears the trouble of a part. True when that changed something."""
        before = self._troubles.get(part, "")
        if sentence:
            self._troubles[part] = sentence
        else:
            self._troubles.pop(part, None)
        return before != sentence

    def not_ready(self) -> list[str]:
        return [f"{part}: {sentence}" for part, sentence in sorted(self._troubles.items())]

    def not_alive(self) -> list[str]:
        found = []
        lag = max(self.lag, self._clock() - self._beat_at - _BEAT)
        if lag > LOOP_LAG_LIMIT:
            found.append(f"the event loop is {lag:.0f} s late")
        oldest = self.oldest_key()
        if oldest > OLDEST_KEY_LIMIT:
            found.append(f"a key has waited or worked for {oldest:.0f} s")
        return found

    async def watch_loop(self) -> None:
        """Measures how late the loop is, once a second, for ever."""
        while True:
            self._beat_at = self._clock()
            await asyncio.sleep(_BEAT)
            self.lag = max(0.0, self._clock() - self._beat_at - _BEAT)


class HealthServer:
    def __init__(self, health: Health, metrics: Metrics, *, host: str, port: int) -> None:
        self._health = health
        self._metrics = metrics
        self._host = host
        self._port = port
        self._runner: web.AppRunner | None = None

    async def start(self) -> int:
        """Listens; the port that was bound (of use where 0 was asked for)."""
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._read_metrics)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        return _answer(self._health.not_alive())

    async def _readyz(self, _: web.Request) -> web.Response:
        return _answer(self._health.not_ready())

    async def _read_metrics(self, _: web.Request) -> web.Response:
        body = exposition.generate_latest(self._metrics.registry)
        return web.Response(body=body, headers={"Content-Type": exposition.CONTENT_TYPE_LATEST})


def _answer(found: Iterable[str]) -> web.Response:
    text = "\n".join(found)
    return web.Response(status=503 if text else 200, text=(text or "ok") + "\n")
