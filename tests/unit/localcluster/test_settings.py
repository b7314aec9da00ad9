"""What a person can choose; what is refused says what is allowed."""

from __future__ import annotations

import pytest

from support.localcluster.errors import ClusterError
from support.localcluster.settings import Settings


def read(environ: dict[str, str], *, name: str | None = None, nodes: int | None = None) -> Settings:
    return Settings.read(environ, name=name, nodes=nodes)


def test_nothing_said_is_one_node_named_treadle() -> None:
    settings = read({})
    assert (settings.name, settings.nodes, settings.existing, settings.offline) == (
        "treadle",
        1,
        False,
        False,
    )


def test_the_command_line_goes_before_the_environment() -> None:
    settings = read({"TREADLE_NODES": "2", "TREADLE_CLUSTER_NAME": "theirs"}, name="mine", nodes=3)
    assert (settings.name, settings.nodes) == ("mine", 3)


def test_an_existing_cluster_needs_to_know_where_the_images_are() -> None:
    with pytest.raises(ClusterError, match="TREADLE_IMAGE_PREFIX"):
        read({"TREADLE_CLUSTER": "existing"})
    settings = read({"TREADLE_CLUSTER": "existing", "TREADLE_IMAGE_PREFIX": "images.example/team/"})
    assert (settings.existing, settings.image_prefix) == (True, "images.example/team")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TREADLE_NODES", "0"),
        ("TREADLE_NODES", "three"),
        ("TREADLE_CLUSTER", "mini"),
        ("TREADLE_CLUSTER_NAME", "-x"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_its_name(variable: str, value: str) -> None:
    with pytest.raises(ClusterError, match=rf"{variable}|cluster name"):
        read({variable: value})
