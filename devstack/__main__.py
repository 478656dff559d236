"""Entry point of ``python -m devstack``; ``bin/stack`` calls it."""

import sys

from devstack.cli import main

sys.exit(main())
