"""Every example does what its README says, word by word."""

import hashlib
import re
import shlex
from typing import Any

import pytest

from support.e2e import EXAMPLES, condition, example, of_kind
from support.eventually import eventually
from support.plugin import Plugin

COLUMNS = ["NAME", "THREAD", "PHASE", "REASON", "ATTEMPT", "DELIVERED", "DURATION", "AGE"]
WIDE = [*COLUMNS, "TOKEN", "POD", "NODE", "STEP", "TOKENS", "MODEL"]
FOLDERS = sorted(path.name for path in EXAMPLES.glob("[0-9][0-9]-*"))


def commands(folder: str) -> list[list[str]]:
    """The kubectl commands of the README's shell blocks, without `kubectl`."""
    blocks = re.findall(r"^```sh\n(.*?)^```", (EXAMPLES / folder / "README.md").read_text(), re.S | re.M)
    lines = [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]
    assert all(line[0] == "kubectl" for line in lines if line)
    return [line[1:] for line in lines if line]


def table(text: str) -> tuple[list[str], list[list[str]]]:
    """Heading and rows of what kubectl prints."""
    heading, *rows = cells(text)
    return heading, rows


def cells(text: str) -> list[list[str]]:
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]


async def shown(plugin: Plugin, name: str) -> dict[str, Any]:
    run: dict[str, Any] = await plugin.cluster.get("run", name, namespace=plugin.namespace)
    return run


@pytest.mark.req("R86", "R87", "R88")
@pytest.mark.parametrize("folder", FOLDERS)
async def test_an_example_runs_as_its_readme_says(plugin: Plugin, folder: str) -> None:
    run = of_kind(example(folder), "Run")
    name = run["metadata"]["name"]
    said = {}
    for words in commands(folder):
        words = [plugin.namespace if word == "agents" else word for word in words]
        said[" ".join(word for word in words if not word.startswith("-"))] = await plugin.succeeds(*words)
    assert any("--timeout=120s" in words for words in commands(folder))

    heading, (row,) = table(said[f"get runs {plugin.namespace}"])
    assert heading == COLUMNS
    told = dict(zip(heading, row, strict=True))
    status = (await shown(plugin, name))["status"]
    assert (told["NAME"], told["THREAD"]) == (name, run["spec"]["threadRef"]["name"])
    assert (told["PHASE"], told["ATTEMPT"], told["DELIVERED"]) == ("Succeeded", "1", "True")
    assert told["REASON"] == condition({"status": status}, "Succeeded")["reason"]
    assert told["DURATION"] == status["duration"]
    wide, _ = table(await plugin.succeeds("get", "runs", "-n", plugin.namespace, "-o", "wide"))
    assert wide == WIDE

    for file in status["delivery"].get("artifacts", ()):
        code, _, err = await plugin("artifact", name, file["path"], "-o", "fetched")
        assert code == 0, err
        data = (plugin.folder / "fetched").read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (file["bytes"], file["sha256"])


@pytest.mark.req("R87")
@pytest.mark.parametrize("folder", FOLDERS)
async def test_the_events_tell_the_story_of_an_example(plugin: Plugin, folder: str) -> None:
    name = of_kind(example(folder), "Run")["metadata"]["name"]
    await plugin.succeeds("apply", "-n", plugin.namespace, "-f", f"examples/{folder}")
    await plugin.succeeds(
        "wait", "-n", plugin.namespace, f"run/{name}", "--for=condition=Finished", "--timeout=120s"
    )
    end = condition(await shown(plugin, name), "Succeeded")

    async def described() -> list[list[str]]:
        text = await plugin.succeeds("describe", "-n", plugin.namespace, "run", name)
        lines = cells(text.partition("Events:\n")[2])
        rows = [line for line in lines if line[0] in ("Normal", "Warning")]
        return rows if end["reason"] in [row[1] for row in rows] else []

    story = await eventually(described, "the end is told as well", within=20, every=0.5)
    assert {row[0] for row in story} == {"Normal"}
    told = {row[1]: row[-1] for row in story}
    # A turn may be over before the operator looks at its claim, and kubectl sorts by whole seconds.
    assert told.keys() - {"Running"} == {"Starting", end["reason"]}
    assert told[end["reason"]] == end["message"]
