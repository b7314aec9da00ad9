"""The SQL migrations, `NNNN_name.sql`: forward only, in the order of their numbers, never edited once
released."""

import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

_NAME: Final = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    sql: str

    @property
    def digest(self) -> str:
        """sha256 hex of the text: tells that an applied file was edited afterwards."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


def _read() -> tuple[Migration, ...]:
    found = []
    for entry in files(__name__).iterdir():
        if match := _NAME.fullmatch(entry.name):
            found.append(Migration(int(match[1]), match[2], entry.read_text(encoding="utf-8")))
    return tuple(sorted(found, key=lambda migration: migration.version))


MIGRATIONS: Final = _read()
WANTED_VERSION: Final = MIGRATIONS[-1].version
