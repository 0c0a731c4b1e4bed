"""Its place makes tests/harness.py importable from every folder of tests."""
