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
  takeNext(form.elements.next);
  form.querySelector("[data-paste]").hidden = true;
  form.querySelector("[data-opened]").hidden = false;
  form.closest("details")?.replaceWith(form);
  for (const each of document.querySelectorAll("[data-without-link]")) each.hidden = true;
  form.querySelector("button").focus();
}

// Who came from an app goes back to it. The page that asked for the letter says where, and the link opens another tab.
const NEXT = "next"; // the key in localStorage of an address, and when it was kept
const NEXT_KEPT = 3_600_000; // milliseconds, as long as the link works

function stored() {
  try {
    return localStorage;
  } catch {
    return null; // the player allows no storage: then a link leads to the account
  }
}

function keepNext() {
  const field = document.querySelector("form[data-link]")?.elements.next;
  if (field && !location.hash) stored()?.setItem(NEXT, JSON.stringify([field.value, Date.now()]));
}

function takeNext(field) {
  const [next, since] = JSON.parse(stored()?.getItem(NEXT) ?? "[]");
  if (field && Date.now() - since < NEXT_KEPT) field.value = next;
}

keepNext();
takeSecret();
addEventListener("hashchange", takeSecret); // a link that was pasted into the address bar of this page
