"""Command lines of the Java programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devstack import jars, packages

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MODULE_FLAGS = (
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--enable-native-access=ALL-UNNAMED",
    "--sun-misc-unsafe-memory-access=allow",  # netty; without it a warning at every start
)
COMMON_FLAGS = (
    "-XX:+UseSerialGC",  # the smallest collector; the heaps are small and the cores two
    "-Xss512k",
    "-Djava.net.preferIPv4Stack=true",
    # No TLS on the loopback address: a throw-away key costs each start 2 to 3 s of CPU.
    "-Dtls.server.mode=disabled",
    "-Dtls.test.mode.enable=false",
    "-Dfile.encoding=UTF-8",
)


def command(
    *,
    main: str,
    home: Path,
    logback: str,
    memory: Sequence[str],
    flags: Sequence[str] = (),
    arguments: Sequence[str] = (),
) -> list[str]:
    """Return the command line of one RocketMQ program.

    Args:
        main: its main class.
        home: its folder: RocketMQ puts logs and store below ``user.home``.
        logback: name of its logging configuration inside the jars.
        memory: heap and direct memory flags.
        flags: more JVM flags.
        arguments: arguments of the program.
    """
    folder = jars.cache_folder()
    class_path = ":".join(str(folder / jar.filename) for jar in jars.read_lock())
    return [
        str(packages.java()),
        *memory,
        *COMMON_FLAGS,
        *MODULE_FLAGS,
        *flags,
        f"-Drocketmq.home.dir={home}",
        f"-Duser.home={home}",
        f"-Drmq.logback.configurationFile={logback}",
        "-cp",
        class_path,
        main,
        *arguments,
    ]
