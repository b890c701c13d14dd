"""A player's own account: `profile` first, then `security`.

`profile` has the name, the picture and the allowed apps, `security` where the player is signed in,
the password and the address; `passkeys` adds and removes them. `export` writes all that is stored.
"""
