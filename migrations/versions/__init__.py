"""One module per revision, in order: ``V001`` and up. Released ones are never edited."""
