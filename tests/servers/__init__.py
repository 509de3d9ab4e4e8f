"""Real servers for the tests: private instances, in a temporary folder, on free ports."""
