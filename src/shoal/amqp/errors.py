"""What can go wrong with a broker. The first split says whether it is worth trying again.

AmqpError
├── ConnectionLost     the broker cannot be reached, or the connection is gone: try again
├── ConnectionRefused  the broker does not want us: wrong password, no such virtual host
├── ChannelClosed      the broker refused an operation, and closed the channel with a code
└── NotAmqp            what answers there is no AMQP 0-9-1 broker, or breaks its rules
"""

from __future__ import annotations

NOT_FOUND = 404
RESOURCE_LOCKED = 405
PRECONDITION_FAILED = 406
ACCESS_REFUSED = 403
INTERNAL_ERROR = 541
NO_ROUTE = 312
NACKED = 0  # of a message that the broker could not store


class AmqpError(Exception):
    """Base class of what this client raises."""


class ConnectionLost(AmqpError):
    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code  # INTERNAL_ERROR: what was asked for made the broker fail


class ConnectionRefused(AmqpError):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{text} ({code})")
        self.code = code
        self.text = text


class ChannelClosed(AmqpError):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class NotAmqp(AmqpError):
    pass
