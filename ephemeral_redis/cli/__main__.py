"""``python -m ephemeral_redis.cli``: the ``ephemeral`` command where no script is installed."""

import sys

from . import main

sys.exit(main())
