"""Document kinds: everything that is kept in the queue as a document, in one list.

Kinds that end in "." are sharded: two hex digits of the document's name follow, so that nobody ever lists
all of them. What only the server may read or write holds keys, or what its callers may do.
"""

from __future__ import annotations

# Runs
SEEDING = "seeding"  # by run: URLs are still being added to it
OVER_TIME = "over-time"  # by run: it took longer than it may, and is cancelled for that
BUDGET = "budget"  # by run: how much of its budget is left, and what each worker has set aside
LOCK = "lock"  # by what is locked, for the whole fleet
CAPTURE = "capture."  # by task and number: a screenshot or PDF of its page
FILL_RATES = "fill"  # by template: how often its fields were filled in its last run
MOVING = "moving"  # by run: it is leaving this queue, or has left
ARRIVING = "arriving"  # by run: how far it has been copied into this queue
QUEUE = "queue"  # the identity of this queue
FAILOVER = "failover"  # the last times that another server took over, and what it lacked
SHARD_MAP = "shard-map"  # which shards a sharded queue has
RECORD_ORDER = "record-order"  # by run: the order in which records of several shards are read
PAGE_QUOTA = "page-quota"  # by run: how many pages each shard may take of its limit
MOVED_TASKS = "moved-tasks"  # by run: what two shards count, because it was moved from one to the other

# What runs are made of
TEMPLATE = "template"  # by name, in versions
TEMPLATE_USE = "template.used"  # by inline template: whether it is in use or being removed
SCHEDULE = "schedule"  # by name
SCHEDULE_START = "schedule.start"  # by schedule and number: what a scheduled run begins with

# The fleet
HISTORY = "history"  # samples by time
CELERY_WORK = "celery-work"  # by number: a message that lets a process of Celery work on this queue
FINAL_COUNTS = "final"  # by worker that has ended: what it counted last
SCALE = "scale"  # the scaler: its state, its history, what people asked of it
BLOCKS = "blocks."  # by host: its usual pages, and the block pages it gives in their place
BLOCK_EVIDENCE = "block-evidence."  # by host and block page: the page itself
FETCHING = "fetching."  # by host: which of its pages need a browser, as workers have learned
SESSION = "session"  # by name: who is logged in, encrypted by the workers
WORKER_PORT = "worker-port"  # by supervisor: where tasks can be pushed to its workers

# RabbitMQ
LETTER_COPIES = "letter-copies"  # how far dead letters have been copied to the broker
INTAKE = "intake"  # how many messages came in, and what became of them

# The server's own
TOKEN = "token"  # noqa: S105 - by name
SESSION_KEY = "session-key"
SESSION_ENDED = "session-ended"  # those that were logged out
ACTIONS = "actions"  # the last actions of users
IDEMPOTENCY = "idempotency."  # by key: what was answered
URL_LIST = "urls."  # by run: the list as it was sent
WEBHOOK = "webhook"  # by id
WEBHOOK_DELIVERY = "webhook.delivery"  # by id: a message that is to be sent
WEBHOOK_WATCH = "webhook.watch"  # runs whose end is to be told
WEBHOOK_STALL = "webhook.stall"  # runs whose stall was told
WEBHOOK_KEY = "webhook.key"  # what messages are signed with

_SERVER_ONLY = frozenset(
    kind.partition(".")[0]
    for kind in (TOKEN, SESSION_KEY, SESSION_ENDED, ACTIONS, IDEMPOTENCY, URL_LIST, WEBHOOK, LETTER_COPIES)
)


def is_server_only(kind: str) -> bool:
    return kind.partition(".")[0] in _SERVER_ONLY
