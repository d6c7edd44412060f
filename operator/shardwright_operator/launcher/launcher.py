"""The file that a pod starts: ``python3 /opt/shardwright/launcher.py [OPTIONS] -- vllm serve ...``."""

import sys

from shardwright_operator.launcher.program import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
