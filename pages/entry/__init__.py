"""Coming in: signing in and out, signing up, a lost password, the code of another device.

`sign_in` has the form and `passkey_sign_in` the same without a password; `sign_up` makes an account
and `welcome` follows it; `gate` is what its form needs beside a name, `application` the page of who
waits for a moderator, `agreement` has the terms and what the site keeps. `recovery` sets
a new password and confirms an address, both from a letter. `device` is where a code of another
device is typed, and `logout` where apps sign out. `language` is where the language of the pages is
chosen.
"""
