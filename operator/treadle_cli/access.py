"""The way to the gateway: its address, and a token that it accepts."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from .arguments import Options
from .errors import CliError
from .kubectl import Forward, Kubectl, KubectlError

AUDIENCE: Final = "treadle-gateway"
"""The token opens the gateway and nothing else of the cluster."""
LIFETIME: Final = "1h"
GATEWAY_LABELS: Final = "app.kubernetes.io/part-of=treadle,app.kubernetes.io/component=gateway"
DEFAULT_GATEWAY: Final = ("treadle-system", "treadle-gateway")
GATEWAY_PORT: Final = 8080


class Access:
    """Address and token, got again when they have worn out."""

    def __init__(self, kubectl: Kubectl, options: Options, namespace: str, forward: Forward | None) -> None:
        self._kubectl = kubectl
        self._options = options
        self._forward = forward
        self._token = ""
        self.namespace = namespace

    async def url(self) -> str:
        """Where the gateway is now, without a slash at the end."""
        if self._forward is None:
            return (self._options.gateway_url or "").rstrip("/")
        return f"http://127.0.0.1:{await self._forward.port()}"

    async def token(self, *, fresh: bool = False) -> str:
        """The bearer token; `fresh` after the one before was refused. Raises CliError."""
        if fresh or not self._token:
            self._token = await self._request_token()
        return self._token

    async def _request_token(self) -> str:
        if self._options.token_file:
            try:
                return Path(self._options.token_file).read_text().strip()  # noqa: ASYNC240 - once, a line
            except OSError as error:
                raise CliError(
                    f"{self._options.token_file}: {error.strerror}", "check --token-file"
                ) from error
        account = self._options.service_account
        try:
            return (
                await self._kubectl.call(
                    *("create", "token", account, "-n", self.namespace),
                    *("--audience", AUDIENCE, "--duration", LIFETIME),
                )
            ).strip()
        except KubectlError as error:
            own = await self._kubectl.call(
                *("config", "view", "--raw", "--minify", "-o", "jsonpath={.users[0].user.token}")
            )
            if own.strip():
                return own.strip()
            raise CliError(
                f"no token for ServiceAccount {account} in namespace {self.namespace}: {error}",
                "list the namespace in agentNamespaces of the chart, or name an account that may get runs "
                "with --service-account, or pass --token-file",
            ) from error


@asynccontextmanager
async def open_access(kubectl: Kubectl, options: Options) -> AsyncIterator[Access]:
    """The way to the gateway, for the time of the block."""
    namespace = options.namespace or await context_namespace(kubectl)
    if options.gateway_url:
        yield Access(kubectl, options, namespace, None)
        return
    where, service = await _find_gateway(kubectl, options.gateway_namespace)
    async with kubectl.port_forward(where, service, GATEWAY_PORT) as forward:
        yield Access(kubectl, options, namespace, forward)


async def context_namespace(kubectl: Kubectl) -> str:
    """The namespace of the kubeconfig's context, as kubectl itself would take it."""
    found = await kubectl.call("config", "view", "--minify", "-o", "jsonpath={..namespace}")
    return found.strip() or "default"


async def _find_gateway(kubectl: Kubectl, namespace: str | None) -> tuple[str, str]:
    scope = ("-n", namespace) if namespace else ("--all-namespaces",)
    try:
        services = (await kubectl.get("services", "-l", GATEWAY_LABELS, *scope))["items"]
    except KubectlError:
        return (namespace, DEFAULT_GATEWAY[1]) if namespace else DEFAULT_GATEWAY
    match services:
        case []:
            where = f"namespace {namespace}" if namespace else "this cluster"
            raise CliError(
                f"there is no gateway in {where}",
                "install the chart with gateway.enabled=true, or pass --gateway-url",
            )
        case [service]:
            return service["metadata"]["namespace"], service["metadata"]["name"]
        case _:
            found = ", ".join(sorted(service["metadata"]["namespace"] for service in services))
            raise CliError(f"there are several gateways, in {found}", "choose one with --gateway-namespace")
