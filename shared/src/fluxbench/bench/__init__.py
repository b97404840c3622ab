"""What a measuring cell calls."""

from __future__ import annotations

import time

from fluxbench.core.errors import one_sentence


@one_sentence
def measure() -> None:
    """Measure what the running cell's header asks for, and write its files.

    Variants: `<cell>.jsonl`, `<cell>.samples.json.gz`, `<cell>.control.json` and `<cell>.capabilities.json`; rates:
    `rates.json`; trials: `trials.json`. Ends the cell with one sentence where its header is not right; anything else
    that goes wrong is a status in the records.
    """
    from fluxbench.bench import measuring, rates, trials
    from fluxbench.core.settings import Settings
    from fluxbench.environments import cell

    started = time.monotonic()
    this = cell.current()
    of_kind = {"variants": measuring.measure_variants, "rates": rates.measure_rates, "trials": trials.measure_trials}
    of_kind[this.measures](this, Settings.load(), started)
