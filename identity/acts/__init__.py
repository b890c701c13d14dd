"""What may be done to players, apps, reports and the site: by whom, and what the audit log says.

Pages and commands ask and answer; what they let an actor do is an act. That holds for what players
do to their own accounts as well. An act checks the actor's rights under the lock of the record that
it changes, on records that are read there: a moderator who was demoted since the page was opened is
refused. Then it writes its audit line and makes the change, which is saved after the line. No-op
changes are not logged, and neither is what players do to themselves. What is logged is limited, so
that nobody fills the disk with lines.

Begin with `actors` (an actor and their `Authority`) and `rights`. The other modules have the acts,
each on its subject: `accounts` on players, `apps`, `reports` and so on. Nothing here knows Flask.
"""
