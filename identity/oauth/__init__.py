"""What the grant of `identity_server.py` needs: requests, clients, tokens, and other grants.

`authorization` reads an authorization request (the rules of redirect URIs are in `model.rules`, and
`model.records.Client` matches them), `clients` a token request; `grants` has consents and access
tokens, `refresh` keeps players signed in by refresh tokens, `revocation` ends tokens or describes
them, and `terms` has the scopes and errors that pages show. `openid`, `claims`, `reauthentication`
and `logout_channel` are OpenID Connect, `device` is the device grant (RFC 8628), and `tickets` with
`server_addresses` lets players join game servers. `programs` has the redirect URIs of well-known
programs. `guards` checks each request before its view.
"""
