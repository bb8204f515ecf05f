"""What a broker's errors mean to people."""

from __future__ import annotations

import ssl
from typing import TypeGuard

from shoal.amqp.address import BrokerAddress
from shoal.amqp.errors import (
    ACCESS_REFUSED,
    INTERNAL_ERROR,
    NOT_FOUND,
    ChannelClosed,
    ConnectionLost,
    ConnectionRefused,
    NotAmqp,
)
from shoal.errors import ActionRequired, QueueRefused, QueueUnavailable

NOT_ALLOWED = 530  # no such virtual host, or not for this user
NOT_IMPLEMENTED = 540
AMQP_PORTS = "is this the AMQP port of RabbitMQ (5672, with TLS 5671 and amqps://), not that of its management?"


def is_refusal(error: object) -> TypeGuard[ChannelClosed]:
    """Whether the broker does not let this user do something: that lasts until a person has changed it."""
    return isinstance(error, ChannelClosed) and error.code in (ACCESS_REFUSED, NOT_IMPLEMENTED)


def translate(address: BrokerAddress, error: Exception) -> ActionRequired:
    if isinstance(error, ConnectionRefused):
        return _refused(address, error)
    if is_refusal(error):
        return QueueRefused(
            f"{address} does not let {address.user} do this: {error}",
            hint=f"rabbitmqctl set_permissions -p '{address.vhost}' {address.user} '.*' '.*' '.*' allows everything;"
            " docs/rabbitmq.md says what relays, workers and producers need at least",
        )
    if isinstance(error, ssl.SSLCertVerificationError):
        return QueueRefused(
            f"{address} has a certificate that is not trusted: {error.verify_message}",
            hint="--ca-file FILE names the certificates to trust; the host name must match",
        )
    if isinstance(error, NotAmqp | ssl.SSLError):
        return QueueRefused(f"{address}: {error}", hint=AMQP_PORTS)
    if isinstance(error, ChannelClosed) and error.code == NOT_FOUND:
        return QueueUnavailable(f"{address}: {error.text}", hint="is a relay running? shoal relay --queue …")
    if isinstance(error, ConnectionLost) and error.code == INTERNAL_ERROR:
        return QueueUnavailable(
            f"{address} failed: {error}",
            hint="its log says more; a queue that it cannot read any more helps nobody: rabbitmqctl delete_queue",
        )
    return QueueUnavailable(
        f"{address} cannot be reached ({error})", hint=f"check that RabbitMQ runs there; {AMQP_PORTS}"
    )


def _refused(address: BrokerAddress, error: ConnectionRefused) -> ActionRequired:
    if error.code == ACCESS_REFUSED:
        return QueueRefused(
            f"{address} refuses the user {address.user} and its password",
            hint="amqp://user:password@…; guest is let in from the broker's own machine only",
        )
    if error.code == NOT_ALLOWED:
        return QueueRefused(
            f"{address} has no virtual host {address.vhost} for {address.user}: {error.text}",
            hint=f"rabbitmqctl add_vhost '{address.vhost}', or another path in the URL;"
            f" rabbitmqctl set_permissions -p '{address.vhost}' {address.user} '.*' '.*' '.*'",
        )
    return QueueUnavailable(f"{address} closed the connection: {error}", hint="RabbitMQ's log says why")
