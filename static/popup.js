// A popup that shows an error offers to close itself. The buttons for that are hidden until this script shows them,
// because a script cannot close a window that no page opened.
"use strict";

function offerToClose() {
  if (!window.opener) return;
  for (const button of document.querySelectorAll("[data-close]")) {
    button.hidden = false;
    button.addEventListener("click", () => window.close());
  }
}

offerToClose();
