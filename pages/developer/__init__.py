"""For who registers an app: the app and its secrets, a tester, and the documentation.

`apps` registers and changes clients; `tester` runs their grants and shows each message, `samples`
has the same requests as programs. `documentation` shows pages of docs/, and `discovery` answers
programs that ask what the server can do.
"""
