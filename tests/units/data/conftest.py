"""Lets the tests here and in contracts/ import `tiny` and `pictures`, whichever is run."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
