"""What the pages share. A new page with a form begins with `forms.form_view`.

`actors` says who acts and requires moderators, `proof` asks for the password or a passkey once
more, `rendering` has what every page shows, and `paging` the pages of a list. `uploads` reads a
picture, `passkeys` offers them, `files` serves pictures and static files, `errors` shows an error
as a page or as JSON, and `unsent` the form that was sent after the session had ended. `documents`
makes web pages of docs/.
"""
