"""evorl: an experiment suite for evolutionary reinforcement learning."""

import logging as _logging

from evorl.util.text import PrintableRecords as _PrintableRecords

__version__ = "0.1.0"
_logging.getLogger(__name__).addFilter(_PrintableRecords())
