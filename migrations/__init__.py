"""The database schema as a chain of Alembic revisions. Imports no application code."""
