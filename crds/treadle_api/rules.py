"""How a model states a constraint once for both readers: pydantic here, the API server's CEL there.

A structural schema can say "at most 63 characters"; it cannot say "exactly one of". Such sentences are
`Rule`s: a CEL expression for the server, a predicate for us, one message for the person. Rules that compare
with the stored object (`oldSelf`) have no predicate: only the server sees both.
"""

import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Strict,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

_ACRONYMS = {"id": "ID", "url": "URL"}


def camel(name: str) -> str:
    """The API's spelling of a field: `thread_id` -> `threadID`, `renew_seconds` -> `renewSeconds`."""
    first, *rest = name.split("_")
    return first + "".join(_ACRONYMS.get(word, word.capitalize()) for word in rest)


@dataclass(frozen=True, slots=True)
class Rule:
    """One sentence about an object. `message` says what to change; `field` is relative to the object."""

    cel: str
    message: str
    holds: Callable[[Any], bool] | None = None
    """The same sentence in Python; None for rules about a change, which only the server can judge."""
    field: str | None = None
    inside: bool = False
    """The server judges `field` itself, which is `self` then: not at all where it is absent, and a rule with
    `oldSelf` only where it was there before. Cheaper than a look from outside, which lists every field of the
    object each time; a status is written often."""
    message_cel: str | None = None
    """CEL for a message that depends on the object; `message` is then for people who read the schema."""
    reason: str = "FieldValueInvalid"

    def as_schema(self) -> JsonSchemaValue:
        schema: JsonSchemaValue = {"rule": self.cel, "message": self.message}
        if self.message_cel is not None:
            schema["messageExpression"] = self.message_cel
        if self.field is not None and not self.inside:
            schema["fieldPath"] = f".{self.field}"
        if self.reason != "FieldValueInvalid":
            schema["reason"] = self.reason
        return schema


class ApiModel(BaseModel):
    """A part of an object of ours.

    Frozen; spelled in camelCase on the wire; unknown fields are ignored, since an older program meets newer
    objects. Never written back whole: a status is replaced by itself, finalizers are patched.
    """

    model_config = ConfigDict(
        alias_generator=camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="ignore",
        frozen=True,
        use_attribute_docstrings=True,
    )

    rules: ClassVar[tuple[Rule, ...]] = ()

    @model_validator(mode="after")
    def _rules_hold(self) -> Self:
        for rule in self.rules:
            if rule.holds is not None and not rule.holds(self):
                raise ValueError(f"{rule.field}: {rule.message}" if rule.field else rule.message)
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core)
        resolved = handler.resolve_ref_schema(schema)
        for rule in cls.rules:
            judged = resolved
            if rule.inside and rule.field is not None:
                judged = resolved["properties"][rule.field]
            judged.setdefault("x-kubernetes-validations", []).append(rule.as_schema())
        return schema


@dataclass(frozen=True, slots=True)
class Extra:
    """Keywords of a structural schema that JSON Schema does not have, and `format`."""

    keywords: tuple[tuple[str, Any], ...]

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler(core)
        schema.update(self.keywords)
        return schema


@dataclass(frozen=True, slots=True)
class Worded:
    """A pattern (RE2 and `re` alike, whole string) whose refusal is a sentence, not a regular expression."""

    pattern: str
    message: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler(core)
        schema["x-kubernetes-validations"] = [
            {"rule": f"self.matches('^({self.pattern})$')", "message": self.message}
        ]
        return schema

    def _check(self, value: str) -> str:
        if re.fullmatch(self.pattern, value) is None:
            raise ValueError(self.message)
        return value


@dataclass(frozen=True, slots=True)
class Unique:
    """A list whose items differ: a `set` of scalars, or a `map` keyed by one field of its items."""

    key: str | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler(core)
        schema["x-kubernetes-list-type"] = "set" if self.key is None else "map"
        if self.key is not None:
            schema["x-kubernetes-list-map-keys"] = [self.key]
        return schema

    def _check(self, items: tuple[Any, ...]) -> tuple[Any, ...]:
        seen: set[Hashable] = set()
        for item in items:
            identity = item if self.key is None else getattr(item, self.key)
            if identity in seen:
                raise ValueError(f"Duplicate value: {identity}")
            seen.add(identity)
        return items


Int32 = Annotated[int, Strict(), Extra((("format", "int32"),))]
Int64 = Annotated[int, Strict(), Extra((("format", "int64"),))]
Time = Annotated[AwareDatetime, Extra((("format", "date-time"),))]
Atomic = Extra((("x-kubernetes-list-type", "atomic"),))
"""A list that one writer replaces as a whole."""


def immutable(required: tuple[str, ...], optional: tuple[str, ...], advice: str) -> tuple[Rule, ...]:
    """These fields may not change once the object exists: neither their values nor whether they are set.

    The second is judged from outside: a rule on a field is not run when the field comes or goes.
    """
    comes_or_goes = {field: f"has(self.{field}) != has(oldSelf.{field})" for field in optional}
    named = " + ".join(f"({differs} ? '{field} ' : '')" for field, differs in comes_or_goes.items())
    return (
        *(
            Rule(
                "self == oldSelf",
                f"{field} is immutable: {advice}",
                field=field,
                inside=True,
                reason="FieldValueForbidden",
            )
            for field in (*required, *optional)
        ),
        Rule(
            f"!({' || '.join(comes_or_goes.values())})",
            f"no field may come or go: {advice}",
            message_cel=f"{named} + 'is immutable: {advice}'",
            reason="FieldValueForbidden",
        ),
    )


def never_removed(field: str, message: str) -> Rule:
    """`field`, once it is set, is there in every later version of the object."""
    return Rule(f"has(self.{field}) || !has(oldSelf.{field})", message, field=field)


def same_once_set(field: str) -> tuple[Rule, ...]:
    """`field` of a status is written once and then kept."""
    message = f"{field} is set once: keep the stored value"
    return (
        Rule("self == oldSelf", message, field=field, inside=True),
        never_removed(field, message),
    )
