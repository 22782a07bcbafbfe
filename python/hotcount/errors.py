"""The errors; each class states whether the call was applied.

A value of the wrong Python type is a builtin TypeError that names the argument. Denied, absent and
unchanged are values and never exceptions, except LimitExceeded of a decorated function. All errors
can be pickled and copied.

Note:
    The classes, all of which derive from HotcountError::

        UnavailableError        nothing was applied; retrying is safe       (also ConnectionError)
        DeadlineError           the deadline passed; nothing was applied    (also TimeoutError)
        OutcomeUnknownError     sent, no answer; retry only what is idempotent
        WrongTypeError          the key holds another type
        AuthError               wrong or missing credentials                (also PermissionError)
        PermissionDeniedError   an ACL, a grant or the file system refuses  (also PermissionError)
        CapacityError           a bound was reached: queue, memory
        IntegrityError          a foreign key or constraint refuses; which
        CounterOverflowError    would leave signed 64 bits; nothing changed (also OverflowError)
        ConfigError             a bad URL, key, option; says which          (also ValueError)
        DatabaseError           the database refused; .code is its own code
        ReplyError              another error reply; .code is its first word
        LeaseLostError          the lease of a build or a place has ended; nothing was applied
        BatchError              .result and .errors by index
        LimitExceeded           a decorated function was not called; .decision says why
        ClosedError             used after close
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "AuthError",
    "BatchError",
    "CapacityError",
    "ClosedError",
    "ConfigError",
    "CounterOverflowError",
    "DatabaseError",
    "DeadlineError",
    "HotcountError",
    "IntegrityError",
    "LeaseLostError",
    "LimitExceeded",
    "OutcomeUnknownError",
    "PermissionDeniedError",
    "ReplyError",
    "UnavailableError",
    "WrongTypeError",
]


class HotcountError(Exception):
    """Base of every error that hotcount raises by itself.

    The facts of the message are attributes, each None if it does not apply. Pickle and copy keep
    them.

    Example:
        >>> import hotcount
        >>> try:
        ...     hotcount.Votes("sqlite:///:memory:", slots=0)
        ... except hotcount.ConfigError as error:
        ...     error.option, error.value
        ('slots', '0')
    """

    code: str | None = None
    """The server's or database's own code: a SQLSTATE, a SQLite code name such as SQLITE_BUSY,
    MariaDB's number, the first word of a Redis error such as WRONGTYPE."""
    server: str | None = None
    """The store or database that the call was made on, as messages name it; never a password."""
    timeout: float | None = None
    """The call's timeout in seconds, if it ended for lack of time or of a server."""
    key: str | bytes | None = None
    """The key as stored, with its prefixes; bytes if it is not UTF-8. Elements of a batch that a
    Redis did not answer share an error, which names none."""
    option: str | None = None
    """The option or argument that is bad."""
    value: str | None = None
    """The bad value of the option, as text."""
    item: int | str | None = None
    """The item of a vote; a UUID as text."""
    user: int | str | None = None
    """The user of a vote."""
    missing: str | None = None
    """In an IntegrityError of a vote: 'item' or 'user', the one without a row."""

    def __init__(self, message: str = "", code: str | None = None) -> None:
        # One argument to the builtin: OSError, a base of some below, reads two as errno, strerror.
        super().__init__(message)
        self.code = code


class UnavailableError(HotcountError, ConnectionError):
    """The backend cannot be reached or is not ready. Nothing was applied: retrying is safe."""


class DeadlineError(HotcountError, TimeoutError):
    """The deadline passed before the work began. Nothing was applied: retrying is safe."""


class OutcomeUnknownError(HotcountError):
    """The call was sent and not answered: it may have been applied.

    Retry only idempotent calls: calls that set a state (cast, retract), or an adding call with the
    same ``op_id``.
    """


class WrongTypeError(HotcountError):
    """The key holds a value of another type. Nothing was applied."""


class AuthError(HotcountError, PermissionError):
    """Wrong or missing credentials."""


class PermissionDeniedError(HotcountError, PermissionError):
    """An ACL, a grant or the file system refuses."""


class CapacityError(HotcountError):
    """A bound was reached (queue, memory). Nothing was applied."""


class IntegrityError(HotcountError):
    """A constraint refuses, such as a vote for an item that has no row. Nothing was applied.

    ``missing`` is 'item' or 'user', whichever has no row, for the answer to a client. The message
    names tables and constraints, but no host and no database; ``server`` names the database.
    """


class CounterOverflowError(HotcountError, OverflowError):
    """The sum would leave signed 64 bits. Nothing changed."""


class ConfigError(HotcountError, ValueError):
    """A bad URL, key or option; the message and ``option`` name it."""


class DatabaseError(HotcountError):
    """The database refused; ``code`` is its own code."""


class ReplyError(HotcountError):
    """The server answered with another error; ``code`` is its first word."""


class LeaseLostError(HotcountError):
    """A lease has ended: that of a set's build, or of a place. Nothing was applied."""


class LimitExceeded(HotcountError):
    """A function that `Limiter.limit` decorates was not called, because the limiter refused.

    ``decision`` is the refusal: its headers() tell an HTTP client.
    """

    decision: Any

    def __init__(self, decision: Any) -> None:
        later = decision.retry_after
        when = "it never will be admitted" if later is None else f"retry after {later:.3f} s"
        super().__init__(f"the limit {decision.policy!r} refuses ({decision.reason}): {when}")
        self.decision = decision

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle and copy: made again from the decision, not from the message."""
        return type(self), (self.decision,), self.__dict__


class ClosedError(HotcountError):
    """Used after ``close()``."""


class BatchError(HotcountError):
    """Some elements of a batch failed; the others are done.

    ``result`` is the whole batch, as ``errors="return"`` would have given it; ``errors`` maps the
    index of each failed element to its error, which elements that say the same share.
    """

    result: Any
    errors: dict[int, HotcountError]

    def __init__(
        self, message: str = "", result: Any = None, errors: dict[int, HotcountError] | None = None
    ) -> None:
        super().__init__(message)
        self.result = result
        self.errors = {} if errors is None else errors
