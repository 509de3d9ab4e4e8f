"""The table of domains and of when to search each of them."""

import sqlalchemy as sa

from knowledge_lookup.migrations.steps import create_table, drop_table, timestamp

revision = "V003"
down_revision = "V002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_table(
        "knowledge_domain",
        sa.Column("domain_id", sa.String(255), primary_key=True),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("when_to_retrieve", sa.Text(), nullable=False),
        sa.Column("document_count", sa.Integer(), nullable=False),
        sa.Column("updated_at", timestamp(), nullable=False),
    )


def downgrade() -> None:
    drop_table("knowledge_domain")
