"""Health and metrics over HTTP. It runs outside of kopf, which would answer only while it watches.

``/readyz`` does not ask for the Lease: a standby is ready too, else a rolling update of the operator would
wait for a Lease that the old pod holds. ``/healthz`` fails when a restart may help: a pass that hangs, or
live lists that have stopped.
"""

import logging
from collections.abc import Callable, Sequence

from aiohttp import web

Check = Callable[[], Sequence[str]]
"""What is wrong now, in words; empty when nothing is."""

log = logging.getLogger(__name__)


class HealthServer:
    """Two ports, or one when both numbers are equal; number 0 picks a free one."""

    def __init__(
        self,
        *,
        host: str,
        health_port: int,
        metrics_port: int,
        alive: Check,
        ready: Check,
        expose: Callable[[], bytes],
    ) -> None:
        self._host = host
        self._alive = alive
        self._ready = ready
        self._expose = expose
        self._wanted = (health_port, metrics_port)
        self._runners: list[web.AppRunner] = []
        self.health_port = 0
        self.metrics_port = 0

    async def start(self) -> None:
        """Listen."""
        health = [web.get("/healthz", self._healthz), web.get("/readyz", self._readyz)]
        metrics = [web.get("/metrics", self._metrics)]
        wanted_health, wanted_metrics = self._wanted
        if wanted_health == wanted_metrics and wanted_health != 0:
            self.health_port = self.metrics_port = await self._listen([*health, *metrics], wanted_health)
            return
        self.health_port = await self._listen(health, wanted_health)
        self.metrics_port = await self._listen(metrics, wanted_metrics)

    async def stop(self) -> None:
        """Close the ports."""
        for runner in self._runners:
            await runner.cleanup()

    async def _listen(self, routes: Sequence[web.RouteDef], port: int) -> int:
        application = web.Application()
        application.add_routes(routes)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        self._runners.append(runner)
        await web.TCPSite(runner, self._host, port).start()
        address = runner.addresses[0]
        return int(address[1])

    async def _healthz(self, _request: web.Request) -> web.Response:
        return _answer(self._alive())

    async def _readyz(self, _request: web.Request) -> web.Response:
        return _answer(self._ready())

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(
            body=self._expose(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )


def _answer(wrong: Sequence[str]) -> web.Response:
    if wrong:
        return web.Response(status=503, text="".join(f"{line}\n" for line in wrong))
    return web.Response(text="ok\n")
