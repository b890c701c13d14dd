"""The site: its settings, and how it says numbers, times and problems.

Begin with `settings`: each environment variable, checked once at the start. `advice` warns of
settings that do not fit the machine; `hosts` knows which hosts only this machine reaches, and which
can have passkeys. `formatting` has numbers and times as text, `pasted` what people paste into a
field, `statistics` the numbers of the site, and `states` when something last happened. `look` has
the name and the colours that pages and letters show, `door` who may come in, `domains` with which
email. `clock` compares the time of this machine with that of other servers, and `networks` knows
whether all players seem to sign in from one. `languages` shows words in a language, with the
sentences that `catalogues` reads.
"""
