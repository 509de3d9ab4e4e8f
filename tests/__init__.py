"""The tests; a package, so that the shared set-up in ``conftest.py`` can import what lies beside it."""
