"""The DDL steps that revisions are made of, each of which may be repeated.

MySQL commits every DDL statement at once. A run that was cut off between two of them leaves a revision half
applied and not recorded, and the next run starts it again. Each step therefore first looks whether it has
been done. Released revisions rely on what is here: add to it, but don't change what a step does.
"""

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

MYSQL_TABLE_OPTIONS: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    # The server's default may fold case and accents, which would make two paths one.
    "mysql_collate": "utf8mb4_bin",
}


def ascii_char(length: int) -> sa.types.TypeEngine[str]:
    """Return CHAR of a fixed length that holds hex digits or a UUID: one byte per character on MySQL too.

    :param length: Number of characters.
    :returns: The column type.
    """
    return sa.CHAR(length).with_variant(mysql.CHAR(length, charset="ascii", collation="ascii_bin"), "mysql")


def timestamp() -> sa.types.TypeEngine[Any]:
    """Return the type of a moment in UTC, to the microsecond.

    :returns: The column type.
    """
    return sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql")


def long_text() -> sa.types.TypeEngine[str]:
    """Return the type of a text that may pass 64 KB.

    :returns: TEXT, and MEDIUMTEXT on MySQL.
    """
    return sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql")


def ascending_id() -> sa.types.TypeEngine[int]:
    """Return the type of a primary key that the database counts up.

    :returns: BIGINT, and INTEGER on SQLite, where only that counts by itself.
    """
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def create_table(name: str, *columns: sa.Column[Any], ids_never_return: bool = False) -> None:
    """Create a table unless a run that was cut off has created it.

    A table of that name with other columns is somebody else's: creating it then fails, as it should.

    :param name: Name of the table.
    :param columns: All its columns.
    :param ids_never_return: Whether SQLite must not give the id of a deleted row to a new one (MySQL never does).
    """
    if _column_names(name) != {column.name for column in columns}:
        op.create_table(name, *columns, sqlite_autoincrement=ids_never_return, **MYSQL_TABLE_OPTIONS)


def create_index(name: str, table: str, columns: list[str], *, unique: bool = False) -> None:
    """Create an index unless it is there.

    :param name: Name of the index.
    :param table: Table it belongs to.
    :param columns: Its columns, in order.
    :param unique: Whether equal values are refused.
    """
    if name not in {index["name"] for index in sa.inspect(op.get_bind()).get_indexes(table)}:
        op.create_index(name, table, columns, unique=unique)


def add_columns(table: str, columns: Iterable[sa.Column[Any]]) -> None:
    """Add those of the columns that aren't there.

    :param table: Table to extend.
    :param columns: The new columns; they must allow null or have a server default.
    """
    present = _column_names(table)
    for column in columns:
        if column.name not in present:
            op.add_column(table, column)


def drop_columns(table: str, names: Iterable[str]) -> None:
    """Drop those of the columns that are there.

    :param table: Table to shorten.
    :param names: Names of the columns.
    """
    present = _column_names(table)
    # On SQLite before 3.35 the table has to be copied without the column, which is what a batch does.
    with op.batch_alter_table(table) as batch:
        for name in names:
            if name in present:
                batch.drop_column(name)


def drop_table(name: str) -> None:
    """Drop a table and its indexes if it is there.

    :param name: Name of the table.
    """
    if _column_names(name):
        op.drop_table(name)


def _column_names(table: str) -> set[str]:
    """Return the names of a table's columns; empty when there is no such table."""
    inspector = sa.inspect(op.get_bind())
    return {column["name"] for column in inspector.get_columns(table)} if inspector.has_table(table) else set()
