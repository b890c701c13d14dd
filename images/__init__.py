"""An upload in, webp files out; and the pictures that are generated for who uploaded none.

Begin with `pictures.make_picture`: Pillow decodes an upload in a process of its own, which may be
killed, and encodes it anew. `covers` draws the cover of an app from its name, tags and id.
"""
