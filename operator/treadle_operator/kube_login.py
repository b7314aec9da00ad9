"""How the operator proves who it is: in-cluster ServiceAccount or a kubeconfig, for our calls and for Kopf's.

Bound ServiceAccount tokens are rotated, so the token file is read again every minute and after a 401. One
`Configuration` of the official client is the source; what Kopf wants is derived from it.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config.config_exception import ConfigException
from kubernetes.aio.config.kube_config import load_kube_config

from treadle_operator.kube_errors import Unavailable

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_SECONDS: Final = 60.0
"""For how long a token that was read from the file is used without looking again."""


@dataclass(frozen=True, slots=True)
class Login:
    """Where the API server is and with what to speak to it; the token may be None (client certificate)."""

    server: str
    ca_path: str | None
    certificate_path: str | None
    private_key_path: str | None
    token: str | None
    insecure: bool


class Credentials:
    """Loads and reloads the client's configuration. `kubeconfig` None means: the pod's ServiceAccount.

    Raises `Unavailable` where nothing usable is found, with a message that names what was looked for.
    """

    def __init__(
        self, kubeconfig: str | None, context: str | None = None, *, service_account: Path = SERVICE_ACCOUNT
    ) -> None:
        self._kubeconfig = kubeconfig
        self._context = context
        self._service_account = service_account
        self._read_at = -TOKEN_SECONDS
        self.configuration = Configuration()

    async def load(self) -> None:
        """Reads everything anew. Call it once before `authorization`."""
        if self._kubeconfig is None:
            self._load_in_cluster()
            return
        try:
            await load_kube_config(
                config_file=self._kubeconfig,
                context=self._context,
                client_configuration=self.configuration,
                persist_config=False,
            )
        except (ConfigException, OSError) as error:
            raise Unavailable(f"the kubeconfig {self._kubeconfig} cannot be used: {error}") from error

    async def authorization(self, *, fresh: bool = False) -> str | None:
        """The value of the Authorization header, None where a client certificate is used."""
        if self._kubeconfig is None:
            if fresh or time.monotonic() - self._read_at > TOKEN_SECONDS:
                self._read_token()
        elif fresh:
            await self.load()
        value = self.configuration.api_key.get("BearerToken")
        return str(value) if value else None

    async def login(self) -> Login:
        """The same credentials as plain values, read anew: Kopf asks again before they expire."""
        await self.load()
        header = self.configuration.api_key.get("BearerToken")
        return Login(
            server=str(self.configuration.host),
            ca_path=self.configuration.ssl_ca_cert,
            certificate_path=self.configuration.cert_file,
            private_key_path=self.configuration.key_file,
            token=str(header).split(" ", 1)[-1] if header else None,
            insecure=not self.configuration.verify_ssl,
        )

    def _load_in_cluster(self) -> None:
        host = os.environ.get("KUBERNETES_SERVICE_HOST")
        port = os.environ.get("KUBERNETES_SERVICE_PORT")
        if not host or not port:
            raise Unavailable(
                "no API server: KUBERNETES_SERVICE_HOST is not set and TREADLE_KUBECONFIG names no file"
            )
        self.configuration.host = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        self.configuration.ssl_ca_cert = str(self._service_account / "ca.crt")
        self._read_token()

    def _read_token(self) -> None:
        path = self._service_account / "token"
        try:
            token = path.read_text().strip()
        except OSError as error:
            raise Unavailable(f"the ServiceAccount token {path} cannot be read: {error}") from error
        self.configuration.api_key["BearerToken"] = f"Bearer {token}"
        self._read_at = time.monotonic()
