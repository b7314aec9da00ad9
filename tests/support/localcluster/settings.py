"""What a person can choose, from the environment and the command line; refused values say what is allowed."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from .errors import ClusterError

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")


@dataclass(frozen=True)
class Settings:
    """`existing`: use the current kube context and create nothing. `offline`: ask no registry."""

    existing: bool
    name: str
    nodes: int
    offline: bool
    image_prefix: str
    image_tag: str

    @classmethod
    def read(
        cls, environ: Mapping[str, str] = os.environ, *, name: str | None, nodes: int | None
    ) -> Settings:
        mode = environ.get("TREADLE_CLUSTER", "")
        if mode not in ("", "kind", "existing"):
            raise ClusterError(
                f"TREADLE_CLUSTER={mode} is not known: leave it empty, or set it to `existing`"
            )
        chosen = name or environ.get("TREADLE_CLUSTER_NAME") or "treadle"
        if not _NAME.fullmatch(chosen):
            raise ClusterError(
                f"cluster name {chosen!r}: at most 32 of a-z, 0-9 and '-', with none of '-' at the ends"
            )
        wanted = str(nodes) if nodes is not None else environ.get("TREADLE_NODES") or "1"
        if wanted not in ("1", "2", "3", "4", "5"):
            raise ClusterError(f"TREADLE_NODES={wanted}: a number from 1 to 5")
        prefix = environ.get("TREADLE_IMAGE_PREFIX", "").rstrip("/")
        if mode == "existing" and not prefix:
            raise ClusterError(
                "TREADLE_CLUSTER=existing needs TREADLE_IMAGE_PREFIX, where that cluster finds our images"
            )
        return cls(
            existing=mode == "existing",
            name=chosen,
            nodes=int(wanted),
            offline=environ.get("TREADLE_OFFLINE", "") not in ("", "0"),
            image_prefix=prefix,
            image_tag=environ.get("TREADLE_IMAGE_TAG", "latest"),
        )
