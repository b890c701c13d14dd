// Passkeys: signs in with one, adds one, and confirms with one who presses (W3C Web Authentication Level 3). Prints codes.
// Without this script, or in a browser without passkeys, the pages work with the password.
"use strict";

const RENEWED_AFTER = 240_000; // milliseconds: a challenge is good for 300 seconds
// What each error of the browser means for the player. NotAllowedError is every refusal, a press on Cancel too.
const advice = document.currentScript.dataset;
const adviceOn = (name) => advice[name[0].toLowerCase() + name.slice(1)] ?? advice.otherError;

// -- bytes and JSON, by hand: not all browsers have the methods of Level 3 --------------------------

function toBytes(text) {
  const letters = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(letters, (letter) => letter.charCodeAt(0));
}

function toText(bytes) {
  const text = btoa(String.fromCharCode(...new Uint8Array(bytes)));
  return text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

const withBytes = (each) => ({ ...each, id: toBytes(each.id) });

// Returns a credential as JSON; `parts` are the names of the bytes in its response.
function describe({ id, rawId, type, response }, parts, more = {}) {
  const bytes = parts.filter((part) => response[part]).map((part) => [part, toText(response[part])]);
  const described = { ...Object.fromEntries(bytes), ...more };
  return JSON.stringify({ id, rawId: toText(rawId), type, response: described, clientExtensionResults: {} });
}

class Refused extends Error {} // by the server; the message is for the player

async function post(address, fields = {}) {
  const response = await fetch(address, { method: "POST", body: new URLSearchParams(fields) });
  const answer = await response.json().catch(() => ({}));
  if (response.ok) return answer;
  throw Object.assign(new Refused(answer.message ?? advice.otherError), { status: response.status });
}

// -- one ceremony at a time -------------------------------------------------------------------------

let running = null; // an AbortController
let ended = Promise.resolve(); // when that ceremony has ended: a browser refuses a second one until then

async function ceremony(ask) {
  running?.abort();
  const mine = (running = new AbortController());
  await ended;
  if (mine.signal.aborted) throw mine.signal.reason;
  const answer = ask(mine.signal);
  ended = answer.catch(() => {});
  return answer;
}

function say(place, error) {
  if (error.name === "AbortError") return; // another ceremony took over
  const status = place.querySelector("[data-passkeys]") ?? document.querySelector("[data-passkeys]");
  status.textContent = error instanceof Refused ? error.message : adviceOn(error.name);
}

// Signs in, or confirms who presses, and goes on to an address of this site, unless the caller goes on otherwise.
async function useKey(leadsTo, mediation = "optional", goOn = (address) => location.assign(address)) {
  await ceremony(async (signal) => {
    const options = await post("/sign-in/passkey/options", { next: leadsTo });
    const { challenge, allowCredentials } = options;
    const publicKey = { ...options, challenge: toBytes(challenge), allowCredentials: allowCredentials.map(withBytes) };
    const credential = await navigator.credentials.get({ publicKey, mediation, signal });
    const parts = ["clientDataJSON", "authenticatorData", "signature", "userHandle"];
    try {
      const answer = await post("/sign-in/passkey", { credential: describe(credential, parts), next: leadsTo });
      goOn(answer.next);
    } catch (error) {
      error.chosen = true;
      const unknown = { rpId: options.rpId, credentialId: credential.id };
      if (error.status === 404) await PublicKeyCredential.signalUnknownCredential?.(unknown);
      throw error;
    }
  });
}

// -- the sign-in page -------------------------------------------------------------------------------

function offerSignIn(button) {
  const leadsTo = document.querySelector("input[name=next]")?.value ?? "/";
  const place = button.parentElement;
  button.hidden = false;
  button.addEventListener("click", () => {
    useKey(leadsTo).catch((error) => {
      say(place, error);
      offerInSuggestions(leadsTo, place);
    });
  });
  offerInSuggestions(leadsTo, place);
}

// Waits until the player chooses a passkey among the suggestions of the name field.
async function offerInSuggestions(leadsTo, place) {
  if (!(await PublicKeyCredential.isConditionalMediationAvailable?.())) return;
  const again = () => offerInSuggestions(leadsTo, place); // which takes over from this one
  const renewal = setTimeout(() => {
    // A page that nobody looks at asks for no challenges.
    if (document.hidden) document.addEventListener("visibilitychange", again, { once: true });
    else again();
  }, RENEWED_AFTER);
  try {
    await useKey(leadsTo, "conditional");
  } catch (error) {
    if (!error.chosen) return; // another one took over, or the browser does not wait: nobody asked for anything
    say(place, error);
    again();
  } finally {
    clearTimeout(renewal);
  }
}

// -- the account pages ------------------------------------------------------------------------------

function offerToAdd(form) {
  form.hidden = false;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      form.elements.credential.value = await ceremony((signal) => makeKey(form, signal));
      form.elements.password?.remove(); // it was checked
      form.submit();
    } catch (error) {
      say(form, error);
    }
  });
}

async function makeKey(form, signal) {
  const options = await post("/account/passkeys/options", new FormData(form));
  const { challenge, user, excludeCredentials } = options;
  const publicKey = { ...options, challenge: toBytes(challenge), user: withBytes(user) };
  publicKey.excludeCredentials = excludeCredentials.map(withBytes);
  const credential = await navigator.credentials.create({ publicKey, signal });
  const transports = credential.response.getTransports?.() ?? [];
  return describe(credential, ["clientDataJSON", "attestationObject"], { transports });
}

function offerToConfirm(button) {
  button.hidden = false;
  button.addEventListener("click", () => {
    confirmAt(button).catch((error) => say(button.parentElement, error));
  });
}

async function confirmAt({ form, dataset }) {
  if ("send" in dataset) return useKey("/", "optional", () => sendWithoutPassword(form));
  const page = document.querySelector('.tabs [aria-current="page"]').href; // this one may be the answer to a form
  return useKey(new URL(page).pathname);
}

function sendWithoutPassword(form) {
  form.elements.password.remove();
  form.requestSubmit();
}

if (window.PublicKeyCredential) {
  document.querySelectorAll("button[name=passkey]").forEach(offerSignIn);
  document.querySelectorAll('form[action="/account/passkeys"]').forEach(offerToAdd);
  document.querySelectorAll("button[name=confirm]").forEach(offerToConfirm);
}

// New recovery codes: the style sheet prints them alone.
for (const button of document.querySelectorAll("button[name=print]")) {
  button.hidden = false;
  button.addEventListener("click", () => print());
}
