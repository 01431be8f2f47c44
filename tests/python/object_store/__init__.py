"""An object store for the tests, and what can happen on the way to it."""
