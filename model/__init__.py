"""What is stored, and its rules. Everything else builds on this; it imports nothing of the server.

`records` has the types for players, apps and what they own, `grant_records` those of what apps get
from players, `site_records` those for the site, and `door_records` those of who may come in.
`kind` says what a kind of record has (an id, keys, indexes, rules), and `kinds` declares each kind
once, with `door_kinds`: begin there. `rules` (of passwords and redirect URIs, say), `names`,
`addresses` and `client_rules` (of new clients) check single values and return the problem;
`soundness` checks whole records, pictures and lines of the audit log, as they come from a disk or
an archive. `encoding` writes records as JSON, `errors` has all errors that storage raises, and
`texts` knows the characters that show nothing. `words` marks the sentences that are translated.
"""
