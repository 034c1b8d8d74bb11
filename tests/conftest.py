"""What all tests run with."""

import os

os.environ.pop("COLUMNS", None)  # pytest's width is none of the programs' that are tested
