"""The table of what each session has been given."""

import sqlalchemy as sa

from knowledge_lookup.migrations.steps import (
    ascending_id,
    ascii_char,
    create_index,
    create_table,
    drop_table,
    timestamp,
)

revision = "V005"
down_revision = "V004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_table(
        "retrieved_document",
        sa.Column("id", ascending_id(), primary_key=True, autoincrement=True),
        sa.Column("session_id", sa.String(255), nullable=False),
        sa.Column("domain", sa.String(255), nullable=False),
        sa.Column("file_path", sa.String(1024), nullable=False),
        sa.Column("section", sa.String(512), nullable=False),
        sa.Column("retrieved_at", timestamp(), nullable=False),
        # sha256 in hex of session, path and section: only one claim of each can ever be written.
        sa.Column("claim_key", ascii_char(64), nullable=False),
        # Rows that were seen to be old are deleted by their ids; meanwhile such an id must not become a new claim's.
        ids_never_return=True,
    )
    create_index("ux_retrieved_document_claim_key", "retrieved_document", ["claim_key"], unique=True)
    # Finds a session's rows, and the last use of every session without reading every row.
    create_index("ix_retrieved_document_session_use", "retrieved_document", ["session_id", "retrieved_at"])


def downgrade() -> None:
    drop_table("retrieved_document")
