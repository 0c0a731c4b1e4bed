"""Tables of papers, declared by the programs below ``benchmarks/`` and rebuilt by ``python -m evorl.reproduce``.

`Table` (table.py) is the declaration. It names sweeps and measurements (parts.py), and a function from their results
to rows, figures and gates. scores.py, verdicts.py and figures.py are what such functions share.
"""
