"""What a measuring cell calls."""

from __future__ import annotations

from pathlib import Path

from fluxbench.core import absent, plain
from fluxbench.core.errors import one_sentence


@plain.goes_on
@one_sentence
def measure() -> None:
    """Measure what the running cell's header asks for, and write its files.

    Variants: `<cell>.jsonl`, `<cell>.samples.json.gz`, `<cell>.control.json` and `<cell>.capabilities.json`; rates:
    `rates.json`; trials: `trials.json`. Ends the cell with one sentence where its header is not right; anything else
    that goes wrong is a status in the records.
    """
    from fluxbench.bench import measuring, rates, trials
    from fluxbench.core.locks import scratch_in_use
    from fluxbench.core.settings import Settings
    from fluxbench.environments import cell

    started = plain.started()
    settings = Settings.load()
    this = cell.current()
    of_kind = {"variants": measuring.measure_variants, "rates": rates.measure_rates, "trials": trials.measure_trials}
    with scratch_in_use(settings.cache):
        of_kind[this.measures](this, settings, started)
    rest = (f"{this.id}.control.json", f"{this.id}.capabilities.json")  # where there was nothing to time or to try
    absent.say(*(name for name in rest if not Path(name).exists()))
