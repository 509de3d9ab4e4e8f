"""What several processes on one database need: leases on documents, and the sequence of changes of the index."""

import sqlalchemy as sa

from knowledge_lookup.migrations.steps import (
    ascending_id,
    ascii_char,
    create_index,
    create_table,
    drop_table,
    timestamp,
)

revision = "V011"
down_revision = "V010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_table(
        "document_lease",
        sa.Column("lease_key", ascii_char(64), primary_key=True),
        sa.Column("holder", ascii_char(36), nullable=False),
        sa.Column("expires_at", timestamp(), nullable=False),
    )
    create_table(
        "index_change",
        sa.Column("id", ascending_id(), primary_key=True, autoincrement=True),
        sa.Column("file_path", sa.String(1024), nullable=False),
        sa.Column("changed_at", timestamp(), nullable=False),
        # A reader remembers the id it has come to: an old id must not come back as a new change.
        ids_never_return=True,
    )
    create_index("ix_index_change_changed_at", "index_change", ["changed_at"])


def downgrade() -> None:
    drop_table("index_change")
    drop_table("document_lease")
