"""The relevance level and the reason for held-back results of each tool call; null in older rows."""

import sqlalchemy as sa

from knowledge_lookup.migrations.steps import add_columns, drop_columns

revision = "V010"
down_revision = "V005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    add_columns(
        "tool_invocation",
        [
            sa.Column("relevance_level", sa.String(20), nullable=True),
            sa.Column("dedup_reason", sa.String(32), nullable=True),
        ],
    )


def downgrade() -> None:
    drop_columns("tool_invocation", ["relevance_level", "dedup_reason"])
