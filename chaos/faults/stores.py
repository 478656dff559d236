"""Faults of PostgreSQL, Redis and the Java processes."""

import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import psycopg
import redis

from chaos.faults.scene import Scene
from chaos.plan import PlannedFault


def _killer(service: str) -> Callable[[Scene, PlannedFault], str]:
    def kill(scene: Scene, fault: PlannedFault) -> str:
        with scene.heavy:
            scene.machine.stack.kill(service)
            scene.machine.stack.start(service)
        return ""

    return kill


def _freezer(service: str) -> Callable[[Scene, PlannedFault], str]:
    def freeze(scene: Scene, fault: PlannedFault) -> str:
        with scene.heavy:
            scene.machine.stack.kill(service, signal.SIGSTOP)
            try:
                time.sleep(fault.for_s)
            finally:
                scene.machine.stack.kill(service, signal.SIGCONT)
        return ""

    return freeze


def _freeze_postgres(scene: Scene, fault: PlannedFault) -> str:
    """The postmaster and all its sessions: SIGSTOP to one process would stop only new sessions."""
    with scene.heavy:
        process = scene.machine.stack.service("postgres").process
        if process is None:
            return "was down already"
        everybody = [process, *process.children()]
        for one in everybody:
            one.suspend()
        time.sleep(fault.for_s)
        for one in everybody:
            one.resume()
    return ""


def _terminate_backends(scene: Scene, fault: PlannedFault) -> str:
    scene.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = 'seckill' AND pid <> pg_backend_pid()"
    )
    return ""


def _hold_lock(scene: Scene, fault: PlannedFault) -> str:
    url = scene.machine.stack.service("postgres").url()  # type: ignore[attr-defined]
    with psycopg.connect(url, connect_timeout=3) as db:
        db.execute(
            "SELECT 1 FROM inventory_stock WHERE sku_id = ANY(%s) FOR UPDATE",
            (list(scene.sku_ids),),
        )
        time.sleep(fault.for_s)
        db.rollback()
    return ""


def _slow_flush(scene: Scene, fault: PlannedFault) -> str:
    """commit_delay sleeps before each flush of the WAL when enough others are at work: here, 0."""
    try:
        scene.sql("ALTER SYSTEM SET commit_delay = 100000")
        scene.sql("ALTER SYSTEM SET commit_siblings = 0")
        scene.sql("SELECT pg_reload_conf()")
        time.sleep(fault.for_s)
    finally:
        for name in ("commit_delay", "commit_siblings"):
            scene.sql(f"ALTER SYSTEM RESET {name}")
        scene.sql("SELECT pg_reload_conf()")
    return ""


def redis_client(scene: Scene) -> redis.Redis:
    """Return a client that goes past the wires."""
    return redis.Redis(host="127.0.0.1", port=scene.machine.stack.settings.ports["redis"])


def _flush_scripts(scene: Scene, fault: PlannedFault) -> str:
    with redis_client(scene) as client:
        client.script_flush()
    return ""


def _older_copy(scene: Scene, fault: PlannedFault) -> str:
    """Copy the append-only file, wait, put the copy back under a killed Redis."""
    home = scene.machine.stack.folder.path / "redis"
    file, copy = home / "appendonly.aof", home / "older.copy"
    with scene.heavy:
        shutil.copyfile(file, copy)
        scene.copy_taken_ms = _now_ms()
        time.sleep(fault.for_s)
        _replace_data(scene, file, copy)
    return ""


def _emptied(scene: Scene, fault: PlannedFault) -> str:
    """Redis starts with nothing at all."""
    with scene.heavy:
        _replace_data(scene, scene.machine.stack.folder.path / "redis" / "appendonly.aof", None)
    return ""


def _replace_data(scene: Scene, file: Path, copy: Path | None) -> None:
    scene.machine.stack.kill("redis")
    if copy is None:
        file.unlink(missing_ok=True)
    else:
        copy.replace(file)
    scene.redis_returned_ms = _now_ms()
    scene.machine.stack.start("redis")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


INJECTORS: Final = {
    "postgres_kill": _killer("postgres"),
    "postgres_stop": _freeze_postgres,
    "backends_terminated": _terminate_backends,
    "lock_held": _hold_lock,
    "slow_flush": _slow_flush,
    "redis_kill": _killer("redis"),
    "redis_stop": _freezer("redis"),
    "redis_older_copy": _older_copy,
    "redis_emptied": _emptied,
    "scripts_flushed": _flush_scripts,
    "broker_kill": _killer("broker"),
    "broker_stop": _freezer("broker"),
    "proxy_kill": _killer("proxy"),
    "proxy_stop": _freezer("proxy"),
    "namesrv_kill": _killer("namesrv"),
}
