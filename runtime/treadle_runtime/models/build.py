"""From a resolved model to a chat model. The only place that sees the API key."""

from typing import Any, Final

from langchain_core.language_models.chat_models import BaseChatModel

from treadle_api.resolved import ResolvedModel
from treadle_runtime.models.script import parse
from treadle_runtime.models.scripted import ScriptedChatModel

SCRIPTED: Final = "scripted"
_TIMEOUT_SECONDS: Final = 120
_RETRIES: Final = 3
_RESERVED: Final = frozenset({"api_key", "base_url", "model", "model_provider", "configurable_fields"})


class ModelConfigurationError(ValueError):
    """The Agent's model cannot be built; the message says which field to change."""


def build_model(model: ResolvedModel, api_key: str | None) -> BaseChatModel:
    """The chat model that the Agent describes. Raises ModelConfigurationError or ScriptError.

    Requests time out after 120 s and are tried 3 times unless `parameters` says otherwise.
    """
    if model.provider == SCRIPTED:
        if not model.script:
            raise ModelConfigurationError(
                "provider scripted needs model.scriptConfigMapKeyRef: there is no script"
            )
        return ScriptedChatModel(script=parse(model.script))
    if reserved := sorted(_RESERVED.intersection(model.parameters)):
        raise ModelConfigurationError(
            f"model.parameters may not set {', '.join(reserved)}: "
            "use baseURL, apiKeySecretKeyRef, name, provider"
        )
    return _from_provider(model, api_key)


def _from_provider(model: ResolvedModel, api_key: str | None) -> BaseChatModel:
    # Half of the process's start-up time, and the scripted model does not need it.
    from langchain.chat_models import init_chat_model

    options: dict[str, Any] = {"timeout": _TIMEOUT_SECONDS, "max_retries": _RETRIES, **model.parameters}
    if model.base_url:
        options["base_url"] = model.base_url
    if api_key:
        options["api_key"] = api_key
    if model.provider == "openai":
        options.setdefault("stream_usage", True)
    try:
        built = init_chat_model(model.name, model_provider=model.provider, **options)
    except ImportError as error:
        raise ModelConfigurationError(
            f"provider {model.provider!r} needs a package that this image does not have: {error}"
        ) from error
    except Exception as error:
        # Each provider's client has exceptions of its own for a missing key or a wrong parameter.
        raise ModelConfigurationError(
            f"model {model.provider}:{model.name} cannot be built ({type(error).__name__}): "
            "check provider, name, parameters, and that apiKeySecretKeyRef names a key"
        ) from error
    if not isinstance(built, BaseChatModel):
        raise ModelConfigurationError(f"{model.provider}:{model.name} is no chat model")
    return built
