"""JSON Schema as pydantic writes it -> the structural schema that a CustomResourceDefinition takes.

Knows exactly what our models use and refuses the rest, so that a new construct is a decision.
"""

import inspect
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]

_RULES = "x-kubernetes-validations"
_KEPT = (
    "description",
    "type",
    "format",
    "enum",
    "default",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "maxProperties",
    "required",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    _RULES,
    "properties",
    "items",
    "additionalProperties",
)
"""In the order in which they are written."""
_DROPPED = frozenset({"title", "$defs"})


class UnsupportedSchema(ValueError):
    """A model uses something that no structural schema can say, or that nobody has decided about."""


def structural(model: type[BaseModel], *, leave_out: str | None = None) -> Schema:
    """The structural schema of `model`, self-contained, without the property `leave_out`.

    Raises UnsupportedSchema.
    """
    raw = model.model_json_schema(by_alias=True, mode="validation")
    defs = raw.get("$defs", {})
    root = dict(_resolve(raw, defs))
    root["properties"] = {name: child for name, child in root["properties"].items() if name != leave_out}
    return _convert(root, defs, model.__name__)


def _convert(node: Mapping[str, Any], defs: Mapping[str, Schema], where: str) -> Schema:
    node = _resolve(node, defs)
    if "anyOf" in node:
        return _convert_union(node, defs, where)
    result: Schema = {}
    for key, value in node.items():
        if key == "description":
            result[key] = " ".join(inspect.cleandoc(value).split())
        elif key == "exclusiveMaximum":
            result["maximum"] = value - 1
        elif key == "properties":
            result[key] = {name: _convert(child, defs, f"{where}.{name}") for name, child in value.items()}
        elif key == "items":
            result[key] = _convert(value, defs, f"{where}[]")
        elif key == "additionalProperties":
            if not isinstance(value, dict):
                raise UnsupportedSchema(f"{where}: an open object cannot be checked, give it a value type")
            result[key] = _convert(value, defs, f"{where}.*")
        elif key == "default":
            if value not in (None, [], {}) and not isinstance(value, dict):
                result[key] = value
        elif key in _KEPT:
            result[key] = value
        elif key not in _DROPPED:
            raise UnsupportedSchema(f"{where}: keyword {key!r} is not known")
    _demand_bounds(result, where)
    return {key: result[key] for key in _KEPT if key in result}


def _resolve(node: Mapping[str, Any], defs: Mapping[str, Schema]) -> Mapping[str, Any]:
    """Inline a `$ref`; what stands beside it (the field's own docstring) wins."""
    if "$ref" not in node:
        return node
    target = defs[node["$ref"].removeprefix("#/$defs/")]
    return _beside(_resolve(target, defs), {key: value for key, value in node.items() if key != "$ref"})


def _beside(node: Mapping[str, Any], more: Mapping[str, Any]) -> Mapping[str, Any]:
    """`node` with what a field says of it; rules of both hold."""
    rules = [*node.get(_RULES, ()), *more.get(_RULES, ())]
    return {**node, **more, **({_RULES: rules} if rules else {})}


def _convert_union(node: Mapping[str, Any], defs: Mapping[str, Schema], where: str) -> Schema:
    arms = [arm for arm in node["anyOf"] if arm.get("type") != "null"]
    beside = {key: value for key, value in node.items() if key != "anyOf"}
    if len(arms) == 1:
        return _convert(_beside(_resolve(arms[0], defs), beside), defs, where)
    if beside.get("x-kubernetes-int-or-string") and {arm.get("type") for arm in arms} == {
        "integer",
        "string",
    }:
        (text,) = (arm for arm in arms if arm["type"] == "string")
        result = _convert({**beside, **{k: v for k, v in text.items() if k != "type"}}, defs, where)
        return {"anyOf": [{"type": "integer"}, {"type": "string"}], **result}
    raise UnsupportedSchema(f"{where}: a union of {len(arms)} types has no structural schema")


def _demand_bounds(node: Schema, where: str) -> None:
    """Every list, map and string has a limit: without one CEL rules cost too much and objects grow."""
    match node.get("type"):
        case "string" if not {"maxLength", "enum", "format"} & node.keys():
            raise UnsupportedSchema(f"{where}: a string needs max_length")
        case "array" if "maxItems" not in node:
            raise UnsupportedSchema(f"{where}: a list needs max_length")
        case "array" if "x-kubernetes-list-type" not in node:
            raise UnsupportedSchema(f"{where}: say whether the list is atomic, a set or a map")
        case "object" if "additionalProperties" in node and "maxProperties" not in node:
            raise UnsupportedSchema(f"{where}: a map needs max_length")
        case "integer" if "format" not in node and "x-kubernetes-int-or-string" not in node:
            raise UnsupportedSchema(f"{where}: say whether the number is int32 or int64")
