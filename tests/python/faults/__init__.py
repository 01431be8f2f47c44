"""Harnesses that disturb a process, a disk or the power supply, and see what becomes of an archive."""
