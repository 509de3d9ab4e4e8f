"""The table of documents: one row for each file of the knowledge base."""

import sqlalchemy as sa

from knowledge_lookup.migrations.steps import (
    ascending_id,
    ascii_char,
    create_index,
    create_table,
    drop_table,
    timestamp,
)

revision = "V001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_table(
        "api_document",
        sa.Column("id", ascending_id(), primary_key=True, autoincrement=True),
        sa.Column("file_path", sa.String(1024), nullable=False),
        # MySQL can't index the whole path; this is its sha256 in hex.
        sa.Column("file_path_hash", ascii_char(64), nullable=False),
        sa.Column("title", sa.String(512), nullable=False),
        sa.Column("category", sa.String(255), nullable=False),
        sa.Column("content_hash", ascii_char(64), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("chunk_count", sa.Integer(), nullable=False),
        sa.Column("embedding_model", sa.String(255), nullable=False),
        sa.Column("created_at", timestamp(), nullable=False),
        sa.Column("updated_at", timestamp(), nullable=False),
    )
    create_index("ux_api_document_file_path_hash", "api_document", ["file_path_hash"], unique=True)
    create_index("ix_api_document_category", "api_document", ["category"])
    create_index("ix_api_document_status", "api_document", ["status"])


def downgrade() -> None:
    drop_table("api_document")
