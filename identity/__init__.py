"""Everything between the records and the pages, by subject. Imports lead down this list:

- `senders`: the threads of a process that send what waits in the outbox
- `oauth`: the grant's parameters, clients, tokens and claims, the device grant, tickets
- `access`: who is signed in, and how somebody proves to be a player
- `acts`: what may be done, by whom, and what the audit log says of it
- `messages`: letters, and what the community's chat is told
- `http`: what is around each request: responses, signatures, limits, the fast path
- `site`: the settings, and the words and numbers of the site

The code grant itself is in `identity_server.py`.
"""
