"""The pages around the grant, by who uses them. Imports lead down this list:

- `blueprints`: the list of all pages, for `create_app`
- `admin`: moderators and administrators; `developer`: who registers an app; `entry`: who comes in
- `account`: a player's own account
- `community`: games and players, for everybody
- `kit`: what the pages share: forms, proofs, rendering, errors

A module with routes has a blueprint, and a template the folder of its page. A page checks a form
and calls an act of `identity.acts`.
"""
