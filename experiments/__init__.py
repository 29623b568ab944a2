"""Tables and figures of the documents, measured again: one experiment per file, one record per experiment.

``python -m experiments --list`` shows all of them, ``python -m experiments ID`` runs one, and RESULTS.md leads to the
claims of each document and to the records in ``results/``. There is a folder per document, ``methods`` for comparisons
across documents, ``functions`` for tasks of posteriors over functions, and ``foundation`` for posteriors of adapters.

To add an experiment, write ``experiments/<folder>/<name>.py`` after the model of ``linlap/em.py``, with

* a frozen dataclass ``Settings``, whose fields become the options ``--settings.<field>``. Inherit from
  :class:`Resumable` if cells may be kept for other settings;
* ``@experiment(id, title, document, paper=Settings(...))`` above the function ``measure(settings, seeds, runner)``;
  the defaults of the settings are the small scale. It trains and scores for each seed, with the :class:`Runner` (a
  progress bar, a cache, results by row) and a :class:`Table` (values by row and column), and returns
  :class:`Findings`: the numbers of the table, claims that need words beside these, and the data of the figure;
* ``@measure.figure`` above the function ``draw(record)``, which draws the figure from the record alone.

Before the run, state its claims in the folder's ``stated.py``: direction, unit and margin, which the rule of verdicts
(``rule.py``) compares with the record. An experiment itself judges only what is exact or of cost
(:meth:`Claim.judged`); :meth:`Claim.over_seeds` adds words to what the rule decides. The text of either is the
``of`` of its statement.

Then add the module to the import line of the folder's ``__init__.py``, and its tiny settings to ``TINY`` in
``tests/experiments/test_reproductions.py``.

``--stale`` lists the records that other code made, and ``--records`` runs them again (``sources.py``, ``stale.py``).
"""

from experiments.experiment import REGISTRY, Experiment, experiment
from experiments.record import (
    TITLES,
    Claim,
    Findings,
    Number,
    Record,
    listed,
    printed,
    read_record,
    rounded,
    word,
)
from experiments.runner import Resumable, Runner, Table, ignoring, timed, train
from osculate.randomness import seeded

# registers the experiments, in the order of the list
from experiments import lae, linlap, dip, vl, l2m, methods, aevb, functions, foundation

#: Figures that come with a table.
ALIASES = {"lae-figure11": "lae-table3"}
