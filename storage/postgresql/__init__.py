"""The storage contract on PostgreSQL, for an installation on several machines.

`backend.py` has the methods of the contract, `schema.py` the tables. The records of each kind have
a module, as in `storage.flat_files`. `connections` runs statements and transactions, and `watchdog`
ends those that hang.

All machines use one primary server; with a synchronous standby, what was saved survives the loss of
the primary. Users and clients are read anew each time, so a change holds at the next request to any
machine.
"""
