"""Log records of the extension's events."""

import json
import logging
from typing import Any

# Without a handler of the program's, nothing is printed.
logging.getLogger("a2store").addHandler(logging.NullHandler())


def levels(names: list[str]) -> list[int]:
    """Return the lowest level at which each logger handles records, at most 255."""
    loggers = map(logging.getLogger, names)
    return [min(max(logger.getEffectiveLevel(), logger.manager.disable + 1), 255) for logger in loggers]


def handle(events: str, dropped: int) -> None:
    """Handle a record for each event in a JSON array.

    ``dropped`` is the number of events that were lost before these events.
    """
    for name, level, time, text, pairs in json.loads(events):
        logger, fields = logging.getLogger(name), dict(pairs)
        if logger.isEnabledFor(level):
            message = " ".join([text, *(f"{key}={_text(value)}" for key, value in fields.items())])
            record = logger.makeRecord(name, level, "(a2store)", 0, message, (), None, None, {"fields": fields})
            record.created, record.msecs = time, time % 1 * 1000
            logger.handle(record)
    if dropped:
        logging.getLogger("a2store").warning("%d log records were dropped, because too many came at once", dropped)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, str) and (not value or any(c.isspace() or c in "\"'=" for c in value)):
        return repr(value)
    return str(value)
