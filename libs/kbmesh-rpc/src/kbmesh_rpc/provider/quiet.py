"""SDKs that tell nobody what they do: their logs hold requests, and with that texts, and sometimes the key."""

import logging

NETWORK = ("httpx", "httpx2", "httpcore", "httpcore2", "h11", "h2", "urllib3", "aiohttp")
"""What SDKs send by."""
SILENT = logging.CRITICAL + 1


def silence(*names: str) -> None:
    """Turns these loggers and those below them off, and those of NETWORK. Call it after the SDK is imported: some set
    their levels then."""
    known = list(logging.Logger.manager.loggerDict)
    for name in (*names, *NETWORK):
        for below in (name, *(each for each in known if each.startswith(f"{name}."))):
            logging.getLogger(below).setLevel(SILENT)
