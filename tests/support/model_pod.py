"""The OpenAI-compatible test server as a pod: agents' pods reach it as they reach any provider."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support import openai_server
from support.agent_pods import RESTRICTED_CONTAINER, RESTRICTED_POD
from support.e2e import PATIENCE, Stage
from support.e2e_bad_input import Object, config_map
from support.eventually import eventually

PORT = 8000
_SOURCE = Path(openai_server.__file__)
NAME = "model"


async def start_model(stage: Stage, scenes: Mapping[str, Mapping[str, Any]]) -> str:
    """A pod that plays `scenes` (see openai_server.Scene), and its base URL once it serves."""
    await stage.apply(_program(scenes), _pod(stage.cluster.image("runtime")))

    async def address() -> str:
        status = (await stage.kube.get("pods", stage.namespace, NAME)).get("status", {})
        ready = {each["type"]: each["status"] for each in status.get("conditions", [])}.get("Ready") == "True"
        return str(status["podIP"]) if ready else ""

    ip = await eventually(address, "the model's pod serves", within=PATIENCE, every=0.2)
    return f"http://{ip}:{PORT}/v1"


def _program(scenes: Mapping[str, Mapping[str, Any]]) -> Object:
    return config_map(NAME, **{"server.py": _SOURCE.read_text(), "scenes.json": json.dumps(scenes)})


def _pod(image: str) -> Object:
    container = {
        "name": NAME,
        "image": image,
        "command": ["python", "/model/server.py", str(PORT), "/model/scenes.json"],
        # Without a request every agent's start goes before it, and answers come later than the timeout.
        "resources": {"requests": {"cpu": "200m"}},
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
        "securityContext": {**RESTRICTED_POD, **RESTRICTED_CONTAINER},
        "volumeMounts": [{"name": NAME, "mountPath": "/model"}],
    }
    spec = {
        "containers": [container],
        "volumes": [{"name": NAME, "configMap": {"name": NAME}}],
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": NAME}, "spec": spec}
