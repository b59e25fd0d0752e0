"""What a question may meet in a process that is not its own fault: it is asked once more, in a fresh one."""

from __future__ import annotations

from easeml_db.errors import EasemlError


class AskAgain(EasemlError):
    """The process died, lacked memory or, with `is_slow`, time."""

    def __init__(self, message: str, *, is_slow: bool = False) -> None:
        super().__init__(message)
        self.is_slow = is_slow

    def __reduce__(self) -> tuple[type[_Slow] | type[AskAgain], tuple[str]]:
        return (_Slow if self.is_slow else AskAgain), (str(self),)


class _Slow(AskAgain):
    def __init__(self, message: str) -> None:
        super().__init__(message, is_slow=True)
