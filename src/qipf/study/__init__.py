"""The study: everything that exists to measure the library. Nothing of the library imports it.

`plan` says what is measured, `run` measures it and keeps every result in a store, `tables` summarises a store, and
`report` and `gallery` show it. `datasets`, `nets`, `recipes` and `shifts` are what the measurements are made with.
"""
