"""The gateway's configuration, from the environment."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from treadle_api.contract import ENV_STORE_DSN, ENV_STREAM_URL


class SettingsError(ValueError):
    """The environment cannot be used; the message names the variable and what it should hold."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`stream_url` None: no live wire, streams poll the store."""

    store_dsn: str
    stream_url: str | None
    host: str
    port: int
    max_streams: int
    store_connections: int

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Self:
        """Raises SettingsError."""
        dsn = environment.get(ENV_STORE_DSN, "")
        if not dsn:
            raise SettingsError(f"set {ENV_STORE_DSN} to the Postgres URL of the role treadle_gateway")
        return cls(
            store_dsn=dsn,
            stream_url=environment.get(ENV_STREAM_URL) or None,
            host=environment.get("TREADLE_GATEWAY_HOST", "0.0.0.0"),  # noqa: S104 - a pod's own address
            port=_number(environment, "TREADLE_GATEWAY_PORT", 8080, 1, 65_535),
            max_streams=_number(environment, "TREADLE_GATEWAY_MAX_STREAMS", 500, 1, 20_000),
            store_connections=_number(environment, "TREADLE_GATEWAY_STORE_CONNECTIONS", 8, 1, 200),
        )


def _number(environment: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    text = environment.get(name, str(default))
    if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
        raise SettingsError(f"{name} must be a whole number from {low} to {high}, not {text!r}")
    return int(text)
