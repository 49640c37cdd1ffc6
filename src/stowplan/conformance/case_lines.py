"""How a line of recorded answers holds its case: under `case`, beside what was expected."""

from __future__ import annotations

import re

WRAPPED = re.compile(rb'"case"\s*:\s*\{')
"""Found in a line whose case is wrapped; a bare case has no such field."""
