// The play page: shows the game, answers it when it asks who is playing, and counts the play time.
// The page around the game is all that the player trusts; the game is somebody else's.
"use strict";

const HEARTBEAT_INTERVAL = 60_000; // milliseconds
const SCOPES = ["userinfo", "userinfo join"]; // that a game may ask for
const ANSWER_TIMEOUT = 8000; // milliseconds until the page says that the game does not answer

const shown = document.getElementById("shown"); // once this script listens
const frame = shown.content.getElementById("game");
const origin = new URL(frame.src).origin;
let signedIn = frame.dataset.request !== undefined;

// -- the game asks --------------------------------------------------------------------------------

let reachedPlayer = false;

window.addEventListener("message", async ({ data, source, origin: sender }) => {
  // The frame's own window: none inside it, none that it opened, and no page that it went on to.
  if (source !== frame.contentWindow || sender !== origin) return;
  gameAnswers();
  if (data?.action === "hello") reply({ type: "hello" }); // the game asks whether it is on this page
  if (!isRequest(data)) return;
  reply(await answerTo(data));
});

function reply(answer) {
  // Never "*": by now another page may be in the frame.
  frame.contentWindow.postMessage(answer, origin);
}

function isRequest(data) {
  if (data?.action !== "authorize") return false;
  return typeof data.client_id === "string" && Array.isArray(data.scopes);
}

async function answerTo({ client_id: clientId, scopes, ...pkce }) {
  if (!signedIn) return refusal("no_account");
  const scope = scopes.map((each) => (typeof each === "string" ? each : "")).join(" ");
  if (!SCOPES.includes(scope)) return refusal("invalid_scopes");
  if (clientId !== frame.dataset.clientId) return refusal("invalid_app");
  if (reachedPlayer) return refusal("already_requested");
  reachedPlayer = true; // before anything is waited for: of two requests at once one is the second
  const asked = { scope, ...challengeIn(pkce) };
  const answer = await send(asked);
  if (answer.message === "consent_required") {
    return (await askPlayer(scope)) ? send({ ...asked, decision: "allow" }) : refusal("access_denied");
  }
  reachedPlayer = !answer.error;
  return answer;
}

// PKCE (RFC 7636), which public clients need; the server checks it.
function challengeIn({ code_challenge: challenge, code_challenge_method: method }) {
  if (challenge === undefined && method === undefined) return {};
  // A game can send anything. An object may have no text at all.
  const [code_challenge, code_challenge_method] = [challenge, method].map((each) =>
    typeof each === "string" ? each : "not text",
  );
  return { code_challenge, code_challenge_method };
}

function refusal(message) {
  return { type: "authorized", error: true, message };
}

async function send(fields) {
  const body = new URLSearchParams({ request: frame.dataset.request, ...fields });
  try {
    const response = await fetch(`/play/${frame.dataset.clientId}/authorize`, { method: "POST", body });
    const answer = await response.json();
    if (answer.message === "no_account") offerSignIn();
    return answer;
  } catch {
    return refusal("server_error"); // no connection, or an error page
  }
}

// -- the player is asked --------------------------------------------------------------------------

let dialog; // once the player is signed in
let holdAllow;

function useDialog(found) {
  dialog = found;
  const allow = document.getElementById("allow");
  holdAllow = holdBack(allow); // hold.js: a game could time a click
  allow.addEventListener("click", () => dialog.close("allow"));
  document.getElementById("cancel").addEventListener("click", () => dialog.close());
}

if (signedIn) useDialog(document.getElementById("ask"));

function askPlayer(scope) {
  document.getElementById("ask-join").hidden = !scope.includes("join");
  // Out of full screen, the browser's own bar shows again where the player is.
  if (document.fullscreenElement) document.exitFullscreen();
  dialog.returnValue = "";
  dialog.showModal();
  holdAllow();
  return new Promise((resolve) => {
    const tell = () => {
      focusGame();
      resolve(dialog.returnValue === "allow");
    };
    dialog.addEventListener("close", tell, { once: true });
  });
}

function keepFocus() {
  if (dialog?.open && document.activeElement === frame) document.getElementById("ask-title").focus();
}

// A game can take the focus from under the dialog. Only after that is done can it be taken back.
window.addEventListener("blur", () => setTimeout(keepFocus));
document.addEventListener("fullscreenchange", () => {
  if (dialog?.open && document.fullscreenElement) document.exitFullscreen();
  holdAllow?.();
});

// -- the player is here ---------------------------------------------------------------------------

async function sendHeartbeat() {
  if (document.hidden || !signedIn || !answered) return;
  const body = new URLSearchParams({ client_id: frame.dataset.clientId });
  const answer = await fetch("/api/users/heartbeat", { method: "POST", body }).catch(() => null);
  if (answer?.status === 401) offerSignIn();
}

setInterval(sendHeartbeat, HEARTBEAT_INTERVAL);
document.addEventListener("visibilitychange", sendHeartbeat);

// -- the player signs in, in a window beside the game ----------------------------------------------

const signIn = document.getElementById("sign-in");
let beside = null; // that window

function offerSignIn() {
  signedIn = false;
  document.getElementById("me").hidden = true;
  signIn.hidden = false;
}

signIn.addEventListener("click", (event) => {
  if (event.ctrlKey || event.metaKey || event.shiftKey) return; // the player opens a tab
  if (beside && !beside.closed) beside.focus();
  // Without a name, by which the game could find the window, or be in one of that name before. If no window opens,
  // the link leads to the sign-in, and from there back to a new load of the game.
  else beside = window.open(`${signIn.href}/signed-in`, "_blank", "popup,width=480,height=760");
  if (beside) event.preventDefault();
});

window.addEventListener("message", async ({ data, source, origin: sender }) => {
  // Our own page in that window (signed_in.js): nothing else is told from there, and the game cannot reach it.
  if (!beside || source !== beside || sender !== location.origin || data?.type !== "signed_in") return;
  const page = await fetchPage();
  if (signedIn || !takePlayer(page)) return; // the window stays open, and offers to play in it
  beside.close();
  focusGame();
  reply({ type: "signed_in" }); // the game may ask again
  sendHeartbeat();
});

// Returns this page as it is for the player who is signed in now; null if the server does not answer.
async function fetchPage() {
  const response = await fetch(location.pathname).catch(() => null);
  return response?.ok ? new DOMParser().parseFromString(await response.text(), "text/html") : null;
}

// Takes from such a page what this one lacks; returns whether it is for the player who was here before, if any: the
// game may know that one.
function takePlayer(page) {
  const { request, player } = page?.getElementById("shown").content.getElementById("game").dataset ?? {};
  if (!request || (frame.dataset.player ?? player) !== player) return false;
  Object.assign(frame.dataset, { request, player });
  document.getElementById("me")?.remove();
  signIn.before(page.getElementById("me"));
  signIn.hidden = true;
  if (!dialog) {
    document.body.append(page.getElementById("ask"));
    useDialog(document.getElementById("ask"));
  }
  return (signedIn = true);
}

// -- the game is shown ----------------------------------------------------------------------------

const fullScreen = document.getElementById("full-screen");
fullScreen.hidden = !document.fullscreenEnabled;
fullScreen.addEventListener("click", () => {
  frame.requestFullscreen();
  focusGame();
});

// Keys go to the game; what it has focused itself keeps the focus.
function focusGame() {
  if (document.activeElement !== frame) frame.focus();
}

frame.addEventListener("load", focusGame, { once: true });
shown.replaceWith(shown.content);

// -- the game does not answer -----------------------------------------------------------------------

let answered = false; // by the game: until then nobody plays it
const silence = document.getElementById("silence");
const patience = setTimeout(() => {
  silence.append(document.getElementById("no-answer").content.cloneNode(true));
}, ANSWER_TIMEOUT);

function gameAnswers() {
  if (answered) return;
  answered = true;
  clearTimeout(patience);
  silence.replaceChildren();
  sendHeartbeat();
}

// The frame's own load event proves nothing: the browser's page for a refused connection has one too.
fetch(frame.src, { method: "HEAD", mode: "no-cors", credentials: "omit" }).then(gameAnswers, () => {});
