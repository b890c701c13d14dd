"""What everybody sees: games, players, and the form of a report.

`games` has the home page and each game, `players` the list and the profiles, and `reports` the form
that reports one of them. On a profile, `moderation_card` is what moderators see, and `moderation`
what they may do there.
"""
