"""An object store for the tests, and a proxy that makes requests to it fail."""
