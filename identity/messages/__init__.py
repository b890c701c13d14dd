"""Outgoing messages: letters to players, and messages to the community's chat.

Begin with `outbox`: a message is stored, then a thread of some process sends it, tries again after
a failure, and gives up after the `delays` of its channel. `mail` composes a letter (`letter` has
the texts of those that players ask for) and `smtp` talks to the mail server; `webhook` posts to the
chat. Both use `connecting`. Which letter a player gets, and when, is decided in
`identity.access.letters`.
"""
