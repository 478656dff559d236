"""supervisord whose processes do not outlive it: killed with SIGKILL, it leaves no orphan."""

import os
import signal
from typing import Final

from supervisor import supervisord  # type: ignore[import-untyped,unused-ignore]
from supervisor.options import ServerOptions  # type: ignore[import-untyped,unused-ignore]

from seckill.demo.parent_death import signal_when_parent_dies

_PID: Final = os.getpid()


class _Options(ServerOptions):  # type: ignore[misc,unused-ignore]
    """What supervisord asks of the system."""

    def setpgrp(self) -> None:
        """Run in each child between fork and exec: its own group, and the tie to its parent."""
        super().setpgrp()
        signal_when_parent_dies(signal.SIGTERM)
        if os.getppid() != _PID:  # it died just before
            os._exit(1)


if __name__ == "__main__":
    supervisord.ServerOptions = _Options
    supervisord.main()
