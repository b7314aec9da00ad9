"""The live wire (06-stream): one interface for the three programs, Redis behind it.

The operator says who may publish (`open_wire`), the agent publishes (`Publisher`), the gateway reads
(`open_reader`). Losing Redis raises `WireUnavailable`, and the caller goes on without it.
"""

from .stream_acl import SERVER_SETTINGS
from .stream_client import FRAME_BYTES_LIMIT, WireFrame, WireUnavailable
from .stream_publisher import MAX_LENGTH, TTL_SECONDS, Publisher
from .stream_reader import Page, Position, Reader, Window, open_reader
from .stream_wire import Nudge, Wire, open_wire

__all__ = [
    "FRAME_BYTES_LIMIT",
    "MAX_LENGTH",
    "SERVER_SETTINGS",
    "TTL_SECONDS",
    "Nudge",
    "Page",
    "Position",
    "Publisher",
    "Reader",
    "Window",
    "Wire",
    "WireFrame",
    "WireUnavailable",
    "open_reader",
    "open_wire",
]
