// The link of a letter has its secret behind the #, which browsers send to no server. This puts it into the form, which
// the player sends by a press: programs that open links press nothing. Without this script the link can be pasted.
"use strict";

const secret = location.hash.slice(1);
if (secret) {
  const form = document.querySelector("form[data-link]");
  form.elements.link.value = secret;
  form.querySelector("[data-paste]").hidden = true;
  form.querySelector("[data-opened]").hidden = false;
  form.closest("details").open = true;
  form.closest("details").querySelector("summary").hidden = true;
  for (const each of document.querySelectorAll("[data-without-link]")) each.hidden = true;
  history.replaceState(null, "", location.pathname); // it stays in no list of visited pages
  form.querySelector("button").focus();
}
