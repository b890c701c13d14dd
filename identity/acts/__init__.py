"""What may be done to players, apps, reports and the site: by whom, and what the audit log says.

Pages and commands ask and answer; what they let an actor do is an act, also what players do to
their own accounts. An act checks the actor's rights under the lock of the record that it changes,
on records that are read there: a moderator who was demoted since the page was opened is refused.
Then it writes its audit line (`Authority.audit`) and makes the change, which is saved after the
line. No-op changes are not logged, and neither is what players do to themselves. What is logged is
limited, so that nobody fills the disk with lines. Nothing here knows Flask.

Begin with `actors` (who acts, and their `Authority`) and `rights`. The acts are functions, by what
they change: `accounts` (players), `sessions` and `families` (where they are signed in: browsers,
and apps that stay so), `passkeys`, `recovery_codes`, `emails`, `apps`, `reports`, `notes`,
`invitations`, `applications`, `network_bans`, `door`, `upkeep`, `look` (of the site),
`announcement` (to all players), `chat` (its webhook) and `checklist` (first steps). They use
`logouts` (what apps are told of a sign-out), `blobs` (pictures that a record names) and
`account_words` (what people read of an act). For pages, `naming` has the words for who did
something, `audit_words` a sentence for each act in the log, and `presence` who plays now.
"""
