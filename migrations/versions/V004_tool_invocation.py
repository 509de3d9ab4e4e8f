"""The table of tool calls: what was asked, what came back, how long it took."""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from knowledge_lookup.migrations.steps import ascii_char, create_index, create_table, drop_table, timestamp

revision = "V004"
down_revision = "V003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_table(
        "tool_invocation",
        sa.Column("id", ascii_char(36), primary_key=True),
        sa.Column("request_id", sa.String(64), nullable=False),
        sa.Column("session_id", sa.String(255), nullable=True),
        sa.Column("tool_name", sa.String(128), nullable=False),
        sa.Column("query", sa.Text(), nullable=False),
        sa.Column("found", sa.Boolean(), nullable=False),
        sa.Column("confidence", sa.String(16), nullable=True),
        sa.Column("latency_ms", sa.Double(), nullable=False),
        # MySQL's TEXT ends at 64 KiB, and a record must not fail for its length.
        sa.Column("retrieval_details", sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql"), nullable=False),
        sa.Column("created_at", timestamp(), nullable=False),
    )
    create_index("ix_tool_invocation_created_at", "tool_invocation", ["created_at"])
    create_index("ix_tool_invocation_session_id", "tool_invocation", ["session_id"])


def downgrade() -> None:
    drop_table("tool_invocation")
