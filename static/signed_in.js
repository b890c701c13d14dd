// The last page in the window beside a game: tells the play page that opened it, which then closes this window. This
// page does not close itself: by that a page of another site, which can open this window too, would learn who is
// signed in.
"use strict";

// At our own origin, never "*": browsers drop the message to an opener of another one.
window.opener?.postMessage({ type: "signed_in" }, location.origin);
