"""Harnesses that disturb a process, a disk or the power supply, and check the archive afterwards."""
