"""The bundled documents, plain Markdown with front matter: what a fresh installation answers from."""
