"""The order consumer of build 1, with the mistake of `seckill.demo.mistaken`.

Everything else is the real consumer; build 2 is `manage.py run_consumer`.
"""

import sys

import django


def main() -> None:
    """Consume the order group with the mistake until SIGTERM."""
    django.setup()
    from messaging.broker import broker
    from messaging.consumer import run_loop
    from messaging.pulse import Pulse
    from messaging.startup import leave_unless_ready
    from messaging.topology import CG_ORDER_CREATE, group_spec
    from messaging.worker import Loop, StopSignal, leave, serve
    from seckill.demo.mistaken import Mistaken

    leave_unless_ready("faulty_consumer", sys.stderr)
    spec = group_spec(CG_ORDER_CREATE)

    def run(stop: StopSignal, pulse: Pulse) -> None:
        receiver = broker().receiver(group=spec.name, topic=spec.topic, tags=spec.tags)
        run_loop(spec, Mistaken(), receiver, stop, pulse=pulse)

    leave(serve(role="consumer", loops=[Loop(name="order-create", group=spec.name, run=run)]))


if __name__ == "__main__":
    main()
