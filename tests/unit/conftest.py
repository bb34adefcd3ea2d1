"""What makes tests of screens quick: there are some thousand key presses in them."""

from __future__ import annotations

import textual._wait

# Behind each key a pilot waits twice until the process has used next to no CPU for so long; Textual
# takes 20 ms and 1 ms.
textual._wait.SLEEP_GRANULARITY = 0.005
textual._wait.SLEEP_IDLE = 0.0005
