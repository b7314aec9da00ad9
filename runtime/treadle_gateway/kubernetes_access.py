"""`Access` by TokenReview and SubjectAccessReview."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
from kubernetes.aio import client, config
from kubernetes.aio.client.exceptions import ApiException

from treadle_api.names import GROUP

from .access import AccessUnavailable, Identity

logger = logging.getLogger(__name__)

AUDIENCE: Final = "treadle-gateway"
"""Tokens made for us carry this audience and open nothing else; the API server's own are accepted too."""
CALL_SECONDS: Final = 5.0


class KubernetesAccess:
    """Asks the API server with the gateway's own ServiceAccount."""

    def __init__(self, api: Any) -> None:
        self._authentication = client.AuthenticationV1Api(api)
        self._authorization = client.AuthorizationV1Api(api)

    async def authenticate(self, token: str) -> Identity | None:
        if not token:  # the API server calls that a bad request
            return None
        for audiences in ([AUDIENCE], None):
            review = client.V1TokenReview(spec=client.V1TokenReviewSpec(token=token, audiences=audiences))
            async with _translated():
                answer = await self._authentication.create_token_review(review, _request_timeout=CALL_SECONDS)
            if answer.status and answer.status.authenticated:
                return _identity(answer.status.user)
        return None

    async def may_get_run(self, identity: Identity, namespace: str, name: str) -> bool:
        review = client.V1SubjectAccessReview(
            spec=client.V1SubjectAccessReviewSpec(
                user=identity.name,
                uid=identity.uid,
                groups=list(identity.groups),
                extra={key: list(values) for key, values in identity.extra},
                resource_attributes=client.V1ResourceAttributes(
                    group=GROUP, resource="runs", verb="get", namespace=namespace, name=name
                ),
            )
        )
        async with _translated():
            answer = await self._authorization.create_subject_access_review(
                review, _request_timeout=CALL_SECONDS
            )
        return bool(answer.status and answer.status.allowed)


def _identity(user: Any) -> Identity:
    extra = user.extra or {}
    return Identity(
        name=user.username,
        uid=user.uid or "",
        groups=tuple(user.groups or ()),
        extra=tuple((key, tuple(extra[key])) for key in sorted(extra)),
    )


@asynccontextmanager
async def _translated() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(CALL_SECONDS):
            yield
    except (ApiException, aiohttp.ClientError, TimeoutError, OSError) as error:
        logger.warning("access review failed", extra={"error": type(error).__name__})
        raise AccessUnavailable from error


@asynccontextmanager
async def open_access(kubeconfig: str | None = None) -> AsyncIterator[KubernetesAccess]:
    """From the pod's ServiceAccount, else from `kubeconfig` or the user's own."""
    configuration = client.Configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)
    except config.ConfigException:
        await config.load_kube_config(kubeconfig, client_configuration=configuration)
    async with client.ApiClient(configuration) as api:
        yield KubernetesAccess(api)
