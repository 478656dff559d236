"""ASGI entry of the web processes.

    granian --interface asgi --loop uvloop --workers 2 seckill.asgi:application

What the process does is in `seckill/web.py`. Source: docs/flow.md.
"""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "seckill.settings")
django.setup(set_prefix=False)

from seckill.web import WebProcess  # noqa: E402  (its imports need a set-up Django)

application = WebProcess()
