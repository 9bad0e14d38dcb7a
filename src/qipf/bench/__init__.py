"""The benchmark: how well do uncertainties find a model's errors when the data shifts?

`plan` says what is measured, `study` turns a plan into a graph of cells, `runner` executes it on an engine, `store`
keeps every result, `read` is how tables and reports look at a store.
"""
