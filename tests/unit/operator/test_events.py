"""What is told about an object."""

from datetime import UTC, datetime

from treadle_operator.events import MESSAGE_LIMIT, Told, event_body

NOW = datetime(2026, 8, 1, 12, 0, tzinfo=UTC)


def told(message: str = "the pod started", reason: str = "Starting") -> Told:
    return Told("Run", "ns", "sales", "uid-1", "Normal", reason, message)


def test_the_same_sentence_has_the_same_name_whoever_says_it_and_when() -> None:
    first = event_body(told(), identity="a", now=NOW)
    again = event_body(told(), identity="b", now=datetime(2027, 1, 1, tzinfo=UTC))
    assert first["metadata"]["name"] == again["metadata"]["name"]


def test_another_sentence_has_another_name() -> None:
    names = {
        event_body(t, identity="a", now=NOW)["metadata"]["name"]
        for t in (told(), told("it ended"), told(reason="Running"))
    }
    assert len(names) == 3


def test_a_long_message_is_cut_where_the_server_would_refuse_it() -> None:
    assert len(event_body(told("x" * 5000), identity="a", now=NOW)["message"]) == MESSAGE_LIMIT


def test_it_names_the_object_and_us() -> None:
    body = event_body(told(), identity="op-1", now=NOW)
    assert body["involvedObject"]["uid"] == "uid-1"
    assert body["source"] == {"component": "treadle-operator"}
    assert body["lastTimestamp"] == "2026-08-01T12:00:00Z"
