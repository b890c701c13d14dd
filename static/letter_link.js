// The link of a letter has its secret behind the #, which browsers send to no server. This puts it into the form, which
// the player sends by a press: programs that open links press nothing. Without this script the link can be pasted.
"use strict";

function takeSecret() {
  const secret = location.hash.slice(1);
  if (!secret) return;
  const form = document.querySelector("form[data-link]");
  if (!form) return; // the page of an earlier link
  history.replaceState(null, "", location.pathname); // it stays in no list of visited pages
  form.elements.link.value = secret;
  form.querySelector("[data-paste]").hidden = true;
  form.querySelector("[data-opened]").hidden = false;
  form.closest("details")?.replaceWith(form);
  for (const each of document.querySelectorAll("[data-without-link]")) each.hidden = true;
  form.querySelector("button").focus();
}

takeSecret();
addEventListener("hashchange", takeSecret); // a link that was pasted into the address bar of this page
