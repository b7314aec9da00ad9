"""The tables of `crds/README.md`: fields, conditions, reasons."""

from collections.abc import Iterable, Iterator

from treadle_api.reasons import ConditionType, Reason, ReasonGroup
from treadle_api.schema import Schema


def reference(kinds: Iterable[tuple[str, Schema]]) -> str:
    """Markdown of everything that the models say; `kinds` are names and schemas of whole objects."""
    return "\n".join([*(_kind(name, schema) for name, schema in kinds), _conditions(), _reasons()])


def _kind(name: str, schema: Schema) -> str:
    lines = [f"## {name}\n", f"{schema['description']}\n", "| field | type | meaning |", "|---|---|---|"]
    for part in ("spec", "status"):
        lines += _rows(schema["properties"][part], part)
    rules = list(_rules(schema))
    if rules:
        lines += ["\nAlso held by the API server:\n", *(f"- {rule}" for rule in rules)]
    return "\n".join(lines) + "\n"


def _rows(node: Schema, path: str) -> Iterator[str]:
    required = node.get("required", [])
    for name, child in node.get("properties", {}).items():
        here = f"{path}.{name}"
        star = " (required)" if name in required else ""
        yield f"| `{here}` | {_type(child)}{star} | {_cell(child.get('description', ''))} |"
        if here.endswith("status.conditions"):
            continue
        yield from _rows(child, here)
        yield from _rows(child.get("items", {}), f"{here}[]")


def _type(node: Schema) -> str:
    if node.get("x-kubernetes-int-or-string"):
        return "quantity"
    if "enum" in node:
        return _cell(" \\| ".join(node["enum"]))
    kind = node.get("type", "")
    match kind:
        case "array":
            return f"list of {_type(node['items'])}, at most {node['maxItems']}"
        case "object" if "additionalProperties" in node:
            return f"map to {_type(node['additionalProperties'])}, at most {node['maxProperties']}"
        case "string":
            return "time" if node.get("format") == "date-time" else f"string, at most {node['maxLength']}"
        case "integer":
            low, high = node.get("minimum"), node.get("maximum")
            bounds = f" {low}..{high if high is not None else ''}" if low is not None else ""
            default = f", default {node['default']}" if "default" in node else ""
            return f"integer{bounds}{default}"
    return str(kind)


def _rules(node: Schema) -> Iterator[str]:
    """The sentences of all CEL rules below `node`, each once."""
    seen: set[str] = set()
    stack = [("", node)]
    while stack:
        path, here = stack.pop()
        for rule in here.get("x-kubernetes-validations", []):
            field = f"{path}{rule.get('fieldPath', '')}".lstrip(".")
            sentence = f"`{field}`: {rule['message']}" if field else rule["message"]
            if sentence not in seen:
                seen.add(sentence)
                yield sentence
        for name, child in reversed(here.get("properties", {}).items()):
            stack.append((f"{path}.{name}", child))
        if "items" in here:
            stack.append((f"{path}[]", here["items"]))
        if isinstance(here.get("additionalProperties"), dict):
            stack.append((f"{path}.*", here["additionalProperties"]))


def _conditions() -> str:
    rows = [f"| {condition.value} | {_cell(condition.meaning)} |" for condition in ConditionType]
    return "\n".join(["## Conditions\n", "| type | meaning |", "|---|---|", *rows]) + "\n"


def _reasons() -> str:
    lines = ["## Reasons\n", "One reason, one next action.\n"]
    for group in ReasonGroup:
        lines += [f"### {group.value}\n", "| reason | means | what to do |", "|---|---|---|"]
        lines += [
            f"| {reason.value} | {_cell(reason.meaning)} | {_cell(reason.next_action)} |"
            for reason in Reason
            if reason.group is group
        ]
        lines.append("")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("\\|", "|").replace("|", "\\|")
