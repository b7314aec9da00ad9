"""What the environment may say, and how a mistake in it is told."""

import pytest

from treadle_operator.settings import Settings, SettingsError

DSN = {"TREADLE_STORE_DSN": "postgresql://operator:secret@db/treadle"}


def test_only_the_store_is_required() -> None:
    settings = Settings.from_environ(DSN)
    assert settings.watch_namespaces == ()
    assert settings.passes == 32
    assert settings.http_port == 8080


def test_no_secret_shows_when_the_settings_are_printed() -> None:
    settings = Settings.from_environ({**DSN, "TREADLE_STREAM_URL": "redis://:secret@redis"})
    assert "secret" not in repr(settings)


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"TREADLE_STORE_DSN": ""}, "TREADLE_STORE_DSN is not set"),
        ({"TREADLE_PASSES": "many"}, "TREADLE_PASSES='many' is not a whole number"),
        ({"TREADLE_HTTP_PORT": "70000"}, "TREADLE_HTTP_PORT=70000 is not between 0 and 65535"),
        ({"TREADLE_LOG_LEVEL": "LOUD"}, "TREADLE_LOG_LEVEL='LOUD' is not one of"),
        ({"TREADLE_FAILPOINTS": "nowhere=exit"}, "TREADLE_FAILPOINTS: 'nowhere=exit' is not POINT=DEED"),
        ({"TREADLE_FAILPOINTS": "after_pod=sing"}, "with POINT one of"),
    ],
)
def test_a_mistake_names_the_variable_and_what_it_should_be(extra: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        Settings.from_environ(DSN | extra)


def test_namespaces_are_a_comma_separated_list() -> None:
    settings = Settings.from_environ(DSN | {"TREADLE_WATCH_NAMESPACES": "b, a,,b"})
    assert settings.watch_namespaces == ("a", "b")


def test_two_processes_on_one_host_never_share_an_identity() -> None:
    assert Settings.from_environ(DSN).identity != Settings.from_environ(DSN).identity
