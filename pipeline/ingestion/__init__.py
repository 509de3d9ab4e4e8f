"""From files to documents, chunks, rows and index entries."""
