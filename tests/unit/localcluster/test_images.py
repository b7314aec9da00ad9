"""Our images are made of what their Dockerfiles and lock files say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.localcluster.images import OWN, WITH_WHEELS, OwnImage
from support.localcluster.layout import CHECKOUT

KEYS = [image.key for image in OWN]
PINNED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^ ;\\]+)", re.MULTILINE)


def pins(lock: Path) -> dict[str, str]:
    return dict(PINNED.findall(lock.read_text()))


@pytest.mark.parametrize("image", OWN, ids=KEYS)
def test_a_dockerfile_copies_exactly_the_sources_that_its_tag_is_made_of(image: OwnImage) -> None:
    copied = re.findall(r"^COPY (?!--from)(\S+)", (CHECKOUT / image.dockerfile).read_text(), re.MULTILINE)
    assert sorted(copied) == sorted(image.sources)


@pytest.mark.parametrize("image", OWN, ids=KEYS)
def test_a_dockerfile_starts_from_the_public_base_unless_told_otherwise(image: OwnImage) -> None:
    text = (CHECKOUT / image.dockerfile).read_text()
    assert f"ARG BASE={image.base.public}\n" in text
    assert set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) == {"${BASE}"}


@pytest.mark.parametrize("image", OWN, ids=KEYS)
def test_an_image_runs_as_an_ordinary_user_with_a_number(image: OwnImage) -> None:
    assert "\nUSER 65532:65532\n" in (CHECKOUT / image.dockerfile).read_text()


@pytest.mark.parametrize("folder", WITH_WHEELS)
def test_an_image_holds_the_versions_that_the_tests_ran_with(folder: str) -> None:
    whole, own = pins(CHECKOUT / "requirements.lock"), pins(CHECKOUT / folder / "requirements.lock")
    assert own
    assert {name: version for name, version in own.items() if whole.get(name) != version} == {}


@pytest.mark.parametrize("folder", WITH_WHEELS)
def test_every_pin_of_an_image_carries_hashes(folder: str) -> None:
    entries = re.split(r"\n(?=\S)", (CHECKOUT / folder / "requirements.lock").read_text().strip())
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []


def test_the_tag_changes_with_the_content_and_with_nothing_else(tmp_path: Path) -> None:
    devstore = next(image for image in OWN if image.key == "devstore")
    first, second = devstore.stage(tmp_path / "a"), devstore.stage(tmp_path / "b")
    assert first == second
    assert first.startswith("localhost/treadle-devstore:")
