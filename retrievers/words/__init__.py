"""Word lists for judging whether a keyword match is decisive: UTF-8, one word or phrase a line, ``#`` for comments."""
