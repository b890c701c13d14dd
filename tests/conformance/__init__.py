"""The OpenID Foundation's conformance plans for providers: Basic, Config and RP-initiated logout.

A test bears the name of a module and demands what the module demands. Where the plan skips one,
because the server does not offer its subject, the test checks that the server says so.
"""
