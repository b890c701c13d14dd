"""For moderators and administrators, at /admin; `desk` has the tabs of all these pages.

`overview` is the first page, with the first steps of a new site in `checklist` and its `numbers`.
`reports`, `players`, `applications` and `networks` are the moderators' work; `door`,
`apps`, `invitations`, `look`, `announcement`, `chat` and `log` are for administrators. `guide`
shows pages of docs/.
"""
