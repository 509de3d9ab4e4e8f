"""The table of what each session has asked: questions, what came of them, and the text that they were given."""

import sqlalchemy as sa

from knowledge_lookup.migrations.steps import (
    ascending_id,
    ascii_char,
    create_index,
    create_table,
    drop_table,
    long_text,
    timestamp,
)

revision = "V012"
down_revision = "V011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_table(
        "session_lookup",
        sa.Column("id", ascending_id(), primary_key=True, autoincrement=True),
        sa.Column("session_id", sa.String(255), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("lookup", long_text(), nullable=False),
        sa.Column("looked_up_at", timestamp(), nullable=False),
        # sha256 in hex of session and number: of two look-ups that were decided at once only one can be written.
        sa.Column("lookup_key", ascii_char(64), nullable=False),
        # As in retrieved_document.
        ids_never_return=True,
    )
    create_index("ux_session_lookup_lookup_key", "session_lookup", ["lookup_key"], unique=True)
    create_index("ix_session_lookup_session_use", "session_lookup", ["session_id", "looked_up_at"])


def downgrade() -> None:
    drop_table("session_lookup")
