"""Whether the model hub can be asked at all.

Without a network its client tries for half a minute; a name that cannot be
resolved is known at once.
"""

import socket
from urllib.parse import urlparse
from urllib.request import getproxies

from huggingface_hub import constants


def hub_is_reachable() -> bool:
    """Look the hub's name up.

    Returns:
        False if it is switched off or its name cannot be resolved.
    """
    if constants.HF_HUB_OFFLINE:
        return False
    if getproxies():
        return True  # the proxy resolves names, not this machine
    try:
        socket.getaddrinfo(urlparse(constants.ENDPOINT).hostname, 443)
    except OSError:
        return False
    return True
