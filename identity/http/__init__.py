"""What is around each request, whatever it asks for.

`fast_path` answers the API calls ahead of Flask, `responses` has JSON, errors and headers, and
`signing` the serializers, a key for each purpose. `limits` counts attempts and bounds expensive
work; `stamps` keeps a press in the first second of a page from counting. `proxies` finds the
address of a client, `metrics` measures requests, and `context` has the app's storage. `languages`
finds the language of a page.
"""
