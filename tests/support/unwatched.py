"""Our kinds under a group that no operator watches, so that none writes into a test's status."""

from typing import Any

CASES_GROUP = "cases.treadle.dev"


def unwatched(crd: dict[str, Any]) -> dict[str, Any]:
    """The same CRD under CASES_GROUP, without the names that make `kubectl get runs` ambiguous."""
    names = crd["spec"]["names"]
    plural, singular = f"{names['plural']}cases", f"{names['singular']}case"
    names = {"kind": names["kind"], "listKind": names["listKind"], "plural": plural, "singular": singular}
    return {
        **crd,
        "metadata": {"name": f"{plural}.{CASES_GROUP}"},
        "spec": {**crd["spec"], "group": CASES_GROUP, "names": names},
    }


def unwatched_path(kind: str, namespace: str, name: str = "", subresource: str = "") -> str:
    parts = (f"/apis/{CASES_GROUP}/v1alpha1/namespaces/{namespace}/{kind.lower()}scases", name, subresource)
    return "/".join(part for part in parts if part)
