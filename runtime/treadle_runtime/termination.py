"""The one JSON line by which a container that ended without an answer says why. Standard library only."""

import json
import logging
import os
from typing import Final

from treadle_api.contract import MESSAGE_LIMIT, TERMINATION_MESSAGE_PATH

log = logging.getLogger(__name__)

ENV_TERMINATION_PATH: Final = "TREADLE_TERMINATION_PATH"
"""Another path than the kubelet's, for agents that run outside a pod."""


def explain(reason: str, message: str) -> None:
    """Leave `{"reason": ..., "message": ...}` where the kubelet picks it up; the newest call stands.

    `message` is cut to 512 characters, a condition's limit. Without the kubelet's file (a bare process)
    the line goes to the log alone.
    """
    path = os.environ.get(ENV_TERMINATION_PATH, TERMINATION_MESSAGE_PATH)
    line = json.dumps({"reason": reason, "message": message[:MESSAGE_LIMIT]})
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(line)
    except OSError as error:
        log.warning("the termination message could not be written", extra={"fields": {"error": str(error)}})
