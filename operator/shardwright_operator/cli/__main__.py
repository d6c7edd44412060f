"""``python -m shardwright_operator.cli``: the command line where no script is installed."""

import sys

from shardwright_operator.cli.main import main

sys.exit(main())
