"""Who is signed in, and how somebody proves to be a player.

Begin with `sessions`, which reads the cookie; `signing_in` starts and ends a session. A proof is a
password (`passwords`, which limits wrong ones; the rules of a new one are in `model.rules`), a
passkey (`passkeys`), or a link or code in a letter (`links`: a password is reset with one).
`admission` says which sign-ups get in by themselves, and `proof_of_work` is what they pay.
`letters` decides which letters about an account are sent, and `mail_channel` composes those that
are asked for as it sends them. `unsent` keeps a form that was sent after the session had ended.
"""
