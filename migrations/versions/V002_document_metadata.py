"""The front matter of each document, as JSON."""

import sqlalchemy as sa

from knowledge_lookup.migrations.steps import add_columns, drop_columns

revision = "V002"
down_revision = "V001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    add_columns("api_document", [sa.Column("metadata", sa.Text(), nullable=True)])


def downgrade() -> None:
    drop_columns("api_document", ["metadata"])
