"""One JSON object a line: a constant sentence and its fields."""

import json
import logging
import sys

from treadle_operator.logs import JsonLines


def line(**fields: object) -> dict[str, object]:
    record = logging.makeLogRecord({"name": "treadle", "levelname": "INFO", "msg": "A run ended", **fields})
    parsed: dict[str, object] = json.loads(JsonLines().format(record))
    return parsed


def test_fields_stand_beside_the_sentence() -> None:
    found = line(run="ns/sales", attempt=2)
    assert found["message"] == "A run ended"
    assert (found["run"], found["attempt"]) == ("ns/sales", 2)
    assert found["level"] == "info"
    assert "args" not in found


def test_an_exception_is_one_field() -> None:
    try:
        raise ValueError("no")
    except ValueError:
        found = line(exc_info=sys.exc_info())
    assert "ValueError: no" in str(found["exception"])
