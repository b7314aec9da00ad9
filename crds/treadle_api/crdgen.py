"""Writes what is generated from the models: `python -m treadle_api.crdgen [--check]`.

`crds/<plural>.yaml` (for kubectl), the same in the chart (as templates, since Helm never upgrades a `crds/`
folder), and the tables of `crds/README.md`. With `--check` nothing is written; exit 1 names what is stale.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from treadle_api.agent import Agent
from treadle_api.meta import Column
from treadle_api.names import GROUP, VERSION
from treadle_api.reference import reference
from treadle_api.run import Run
from treadle_api.schema import Schema, structural
from treadle_api.thread import Thread

KINDS: tuple[type[Agent] | type[Thread] | type[Run], ...] = (Agent, Thread, Run)

_ROOT = Path(__file__).resolve().parents[2]
_HEADER = "# Generated from crds/treadle_api by `make generate`; edit the models, not this file.\n"
_README_BEGIN = "<!-- generated: begin -->\n"
_README_END = "<!-- generated: end -->\n"


def definition(model: type[Agent] | type[Thread] | type[Run]) -> dict[str, Any]:
    """The CustomResourceDefinition of one kind, as plain data."""
    kind = model.kind
    selectable = [{"jsonPath": path} for path in kind.selectable]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{kind.plural}.{GROUP}",
            "annotations": {"helm.sh/resource-policy": "keep"},
        },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
                "plural": kind.plural,
                "singular": kind.kind.lower(),
                "shortNames": [kind.short_name],
                "categories": ["treadle"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    **({"selectableFields": selectable} if selectable else {}),
                    "additionalPrinterColumns": [_column(column) for column in kind.columns],
                    "schema": {"openAPIV3Schema": object_schema(model)},
                }
            ],
        },
    }


def object_schema(model: type[Agent] | type[Thread] | type[Run]) -> Schema:
    """The schema of a whole object: apiVersion, kind, metadata as the server wants them, spec, status.

    `status` and its `observedGeneration` both default to "not seen": the first default alone vanishes when
    the operator leaves the field out, the second alone does nothing on create. kstatus then never calls an
    unseen object done.

    `status` is atomic: its one writer replaces it as a whole. `managedFields` then holds one entry for it
    instead of one for each field, which was two fifths of a Run and is compared with every write.
    """
    schema = structural(model, leave_out="metadata")
    properties = schema["properties"]
    properties["status"] |= {"x-kubernetes-map-type": "atomic", "default": {"observedGeneration": -1}}
    schema["properties"] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": properties["spec"],
        "status": properties["status"],
    }
    return schema


def _column(column: Column) -> Schema:
    shown: Schema = {"name": column.name, "type": column.type, "jsonPath": column.path}
    if column.wide:
        shown["priority"] = 1
    return shown


class _Dumper(yaml.SafeDumper):
    """No anchors: every part stands where it is used."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def render(model: type[Agent] | type[Thread] | type[Run]) -> str:
    """The YAML of one kind, as committed."""
    return _HEADER + yaml.dump(definition(model), Dumper=_Dumper, sort_keys=False, width=110)


def generated(root: Path = _ROOT) -> Iterator[tuple[Path, str]]:
    """Every generated file with the text it must have."""
    for model in KINDS:
        text = render(model)
        yield root / "crds" / f"{model.kind.plural}.yaml", text
        yield (
            root / "charts" / "treadle" / "templates" / "crds" / f"{model.kind.plural}.yaml",
            "{{- if .Values.crds.install }}\n" + text + "{{- end }}\n",
        )
    readme = root / "crds" / "README.md"
    before, _, rest = readme.read_text().partition(_README_BEGIN)
    _, _, after = rest.partition(_README_END)
    tables = reference([(model.__name__, object_schema(model)) for model in KINDS])
    yield readme, before + _README_BEGIN + tables + _README_END + after


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m treadle_api.crdgen", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail when a file is stale")
    check = parser.parse_args().check
    stale = [(path, text) for path, text in generated() if not path.exists() or path.read_text() != text]
    for path, text in stale:
        if check:
            print(f"{path.relative_to(_ROOT)} is stale: run `make generate`", file=sys.stderr)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            print(f"wrote {path.relative_to(_ROOT)}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
