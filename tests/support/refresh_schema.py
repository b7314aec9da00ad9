"""`make generate`: writes `schema.sql` as a freshly migrated database has it."""

import asyncio
from pathlib import Path

import treadle_store
from treadle_store.devstore import DevStore
from treadle_store.migrate import connect, migrate
from treadle_store.schema_dump import dump_schema

TARGET = Path(treadle_store.__file__).parent / "schema.sql"


async def refresh() -> None:
    async with DevStore.start() as store:
        connection = await connect(store.admin_dsn, wait=30)
        try:
            await migrate(connection)
            TARGET.write_text(await dump_schema(connection), encoding="utf-8")
        finally:
            await connection.close()


if __name__ == "__main__":
    asyncio.run(refresh())
    print(f"wrote {TARGET.name}")
