// The messages of static/play.js, in Node with stand-ins for the page, the game's frame and the server.
// What only a browser shows (frames, focus, the sandbox) has its tests in test_play_page.py.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { stoppedClock } from "./clock.mjs";

const SCRIPT = readFileSync(new URL("../../../static/play.js", import.meta.url), "utf8");
const SITE = "https://site.example";
const GAME = "https://game.example";
const REQUEST = { action: "authorize", client_id: "a game", scopes: ["userinfo"] };
const CONSENT_REQUIRED = { type: "authorized", error: true, message: "consent_required" };
const ADA = { request: "a request of Ada", player: "1" };
const CODE = { type: "authorized", error: false, code: "a code" };

class Element extends EventTarget {
  dataset = {};
  children = [];
  append(...more) { this.children.push(...more); }
  replaceChildren() { this.children = []; }
  replaceWith() {}
  focus() {}
  remove() {}
  before(...more) { this.children.push(...more); }
}

class Popup {
  closed = false;
  focused = 0;
  constructor(how) { this.how = how; }
  close() { this.closed = true; }
  focus() { this.focused += 1; }
}

class Dialog extends Element {
  open = false;
  showModal() { this.open = true; }
  close(value = this.returnValue) {
    [this.open, this.returnValue] = [false, value];
    this.dispatchEvent(new Event("close"));
  }
}

// Opens the play page. `authorize` and `heartbeat` answer the requests of the page like the server.
// `anew` is the dataset of the frame on this page as the server has it later, null if it does not answer.
function open({
  signedIn = true, answersHead = false, authorize = consentThenCode, heartbeat = 200, popups = true, anew = ADA,
} = {}) {
  const clock = stoppedClock();
  const told = [];
  const contentWindow = { postMessage: (message, origin) => told.push([message, origin]) };
  const dataset = { clientId: "a game", ...(signedIn && { request: "a signed request", player: "1" }) };
  const frame = Object.assign(new Element(), { src: `${GAME}/`, contentWindow, dataset });
  const elements = { ask: signedIn ? new Dialog() : null, allow: new Element(), me: signedIn ? new Element() : null };
  elements.shown = Object.assign(new Element(), { content: { getElementById: () => frame } });
  elements["no-answer"] = { content: { cloneNode: () => "the game is not answering" } };
  for (const id of ["ask-join", "cancel", "full-screen", "silence", "sign-in"]) elements[id] = new Element();
  const body = { append: (dialog) => (elements.ask = dialog) };
  const document = Object.assign(new Element(), { getElementById: (id) => elements[id], hidden: false, body });
  elements["sign-in"].href = `${SITE}/sign-in?next=/play/a%20game`;
  const window = new EventTarget();
  const windows = []; // those that the page opened
  window.open = (...how) => popups && windows[windows.push(new Popup(how)) - 1];
  const location = { origin: SITE, pathname: "/play/a game" };
  class DOMParser {
    parseFromString() {
      const later = { ask: new Dialog(), me: new Element() };
      later.shown = { content: { getElementById: () => ({ dataset: anew }) } };
      return { getElementById: (id) => later[id] };
    }
  }
  const authorized = [];
  const heartbeats = [];
  const holds = []; // of hold.js

  async function fetch(address, { method, body } = {}) {
    if (address === location.pathname) return { ok: anew !== null, text: async () => "a page" };
    if (method === "HEAD") return answersHead ? {} : Promise.reject(new TypeError());
    if (address.endsWith("/heartbeat")) return { status: heartbeats.push(address) && heartbeat };
    assert.equal(address, "/play/a game/authorize");
    authorized.push(Object.fromEntries(body));
    return { json: async () => authorize(authorized.at(-1)) };
  }

  const globals = { window, document, location, DOMParser, fetch, holdBack: () => () => holds.push("Allow"), ...clock.functions };
  new Function(...Object.keys(globals), SCRIPT)(...Object.values(globals));
  const more = { told, authorized, heartbeats, holds, document, frame, windows, send, press, contentWindow, pass };
  return { ...elements, ...more, click };

  async function send(data, source = contentWindow, origin = GAME) {
    window.dispatchEvent(Object.assign(new Event("message"), { data, source, origin }));
    await settled();
  }

  // Returns whether the browser follows the link.
  function click(id, keys = {}) {
    return elements[id].dispatchEvent(Object.assign(new Event("click", { cancelable: true }), keys));
  }

  async function press(id) {
    assert(elements.ask.open);
    elements[id].dispatchEvent(new Event("click"));
    await settled();
  }

  async function pass(milliseconds) {
    clock.pass(milliseconds);
    await settled();
  }
}

function consentThenCode({ decision }) {
  return decision === "allow" ? CODE : CONSENT_REQUIRED;
}

const settled = () => new Promise(setImmediate);
const refusal = (message) => [{ type: "authorized", error: true, message }, GAME];

test("a request gets a code when the player allows it", async () => {
  const page = open();
  await page.send(REQUEST);
  assert.deepEqual([page.told, page.holds], [[], ["Allow"]]);
  await page.press("allow");
  assert.deepEqual(page.told, [[CODE, GAME]]);
  const request = { request: "a signed request", scope: "userinfo" };
  assert.deepEqual(page.authorized, [request, { ...request, decision: "allow" }]);
  assert(!page.ask.open);
});

test("a request for the scope join says so in the question", async () => {
  for (const [scopes, hidden] of [[["userinfo"], true], [["userinfo", "join"], false]]) {
    const page = open();
    await page.send({ ...REQUEST, scopes });
    assert.equal(page["ask-join"].hidden, hidden);
    await page.press("allow");
    assert.deepEqual(page.authorized.map(({ scope }) => scope), Array(2).fill(scopes.join(" ")));
  }
});

test("a remembered consent gets one code without a question", async () => {
  const page = open({ authorize: () => CODE });
  for (const _ of [1, 2]) await page.send(REQUEST);
  assert.deepEqual(page.told, [[CODE, GAME], refusal("already_requested")]);
  assert(!page.ask.open);
});

test("cancel is access_denied and sends no decision", async () => {
  const page = open();
  await page.send(REQUEST);
  await page.press("cancel");
  assert.deepEqual(page.told, [refusal("access_denied")]);
  assert.deepEqual(page.authorized, [{ request: "a signed request", scope: "userinfo" }]);
});

test("the second request that reaches the player is already_requested", async () => {
  const page = open();
  await Promise.all([page.send(REQUEST), page.send(REQUEST)]);
  assert.deepEqual(page.told, [refusal("already_requested")]);
  await page.press("cancel");
  await page.send(REQUEST);
  assert.deepEqual(page.told.slice(1), [refusal("access_denied"), refusal("already_requested")]);
  assert.equal(page.authorized.length, 1);
});

test("other scopes and other apps are refused and not counted", async () => {
  const page = open();
  const scopes = [["userinfo", "email"], ["email"], [], [["userinfo"]], ["join"], ["userinfo", "join", {}]];
  for (const each of scopes) await page.send({ ...REQUEST, scopes: each });
  for (const each of ["0", ""]) await page.send({ ...REQUEST, client_id: each });
  assert.deepEqual(page.told.splice(0), [
    ...scopes.map(() => refusal("invalid_scopes")),
    ...[refusal("invalid_app"), refusal("invalid_app")],
  ]);
  assert.deepEqual(page.authorized, []);
  await page.send(REQUEST);
  await page.press("allow");
  assert.deepEqual(page.told, [[CODE, GAME]]);
});

test("malformed messages are ignored", async () => {
  const page = open();
  const malformed = [null, undefined, 1, "authorize", [], {}, new Map([["action", "authorize"]])];
  for (const change of [
    { action: "authorise" },
    { action: ["authorize"] },
    { client_id: ["a game"] },
    { client_id: undefined },
    { scopes: "userinfo" },
    { scopes: { length: 1, 0: "userinfo" } },
    { scopes: undefined },
  ]) malformed.push({ ...REQUEST, ...change });
  for (const each of malformed) await page.send(each);
  assert.deepEqual([page.told, page.authorized], [[], []]);
});

test("messages of other windows and of other origins are ignored", async () => {
  const page = open();
  for (const data of [REQUEST, { action: "hello" }]) {
    await page.send(data, {});
    await page.send(data, page.contentWindow, "https://evil.example");
  }
  assert.deepEqual([page.told, page.authorized, page.heartbeats], [[], [], []]);
});

test("hello is answered and not counted, signed in or not", async () => {
  for (const signedIn of [true, false]) {
    const page = open({ signedIn });
    await page.send({ action: "hello" });
    assert.deepEqual(page.told.splice(0), [[{ type: "hello" }, GAME]]);
    await page.send(REQUEST);
    assert.deepEqual(page.told, signedIn ? [] : [refusal("no_account")]);
  }
});

test("the challenge (RFC 7636) is sent as text, and its refusal is not counted", async () => {
  const [invalid] = refusal("invalid_request");
  const page = open({ authorize: (sent) => ("code_challenge" in sent ? invalid : CODE) });
  const request = { request: "a signed request", scope: "userinfo" };
  for (const [sent, received] of [
    [{ code_challenge: "a", code_challenge_method: "S256" }, ["a", "S256"]],
    [{ code_challenge: "a" }, ["a", "not text"]],
    [{ code_challenge_method: "S256" }, ["not text", "S256"]],
    [{ code_challenge: ["a"], code_challenge_method: { toString: 1, valueOf: 1 } }, ["not text", "not text"]],
  ]) {
    await page.send({ ...REQUEST, ...sent });
    const [code_challenge, code_challenge_method] = received;
    assert.deepEqual(page.authorized.splice(0), [{ ...request, code_challenge, code_challenge_method }]);
    assert.deepEqual(page.told.splice(0), [[invalid, GAME]]);
  }
  await page.send(REQUEST);
  assert.deepEqual(page.told, [[CODE, GAME]]);
});

test("the challenge is sent again with the decision", async () => {
  const page = open();
  await page.send({ ...REQUEST, code_challenge: "a", code_challenge_method: "S256" });
  await page.press("allow");
  const [asked, decided] = page.authorized;
  assert.deepEqual(decided, { ...asked, decision: "allow" });
});

test("a guest is no_account, whatever the request", async () => {
  const page = open({ signedIn: false });
  await page.send(REQUEST);
  await page.send({ ...REQUEST, scopes: ["email"] });
  assert.deepEqual(page.told, [refusal("no_account"), refusal("no_account")]);
  assert.deepEqual(page.authorized, []);
});

test("a player whose session has ended is no_account and is offered to sign in", async () => {
  const page = open({ authorize: () => refusal("no_account")[0] });
  for (const _ of [1, 2]) await page.send(REQUEST);
  assert.deepEqual(page.told, [refusal("no_account"), refusal("no_account")]);
  assert.equal(page.authorized.length, 1);
  assert.deepEqual([page.me.hidden, page["sign-in"].hidden], [true, false]);
});

test("an unreachable server and an error page are server_error and can be retried", async () => {
  const failures = [new TypeError("no connection"), new SyntaxError("not JSON")];
  const page = open({ authorize: () => (failures.length ? Promise.reject(failures.pop()) : CODE) });
  for (const _ of [1, 2, 3]) await page.send(REQUEST);
  assert.deepEqual(page.told, [refusal("server_error"), refusal("server_error"), [CODE, GAME]]);
});

test("a game that is silent for eight seconds is reported until it sends a message", async () => {
  const page = open();
  await page.pass(7999);
  assert.deepEqual(page.silence.children, []);
  await page.pass(1);
  assert.deepEqual(page.silence.children, ["the game is not answering"]);
  await page.pass(600_000);
  assert.deepEqual(page.heartbeats, []); // nobody plays it
  for (const _ of [1, 2]) await page.send("any message");
  assert.deepEqual([page.silence.children, page.heartbeats.length], [[], 1]);
});

test("a game whose server answers is not reported", async () => {
  const page = open({ answersHead: true });
  await page.pass(0);
  await page.pass(8000);
  assert.deepEqual(page.silence.children, []);
});

test("a heartbeat is sent each minute while the page is visible", async () => {
  const page = open({ answersHead: true });
  await page.pass(0);
  assert.equal(page.heartbeats.length, 1);
  await page.pass(59_999);
  assert.equal(page.heartbeats.length, 1);
  await page.pass(60_001);
  assert.equal(page.heartbeats.length, 3);
  page.document.hidden = true;
  await page.pass(600_000);
  assert.equal(page.heartbeats.length, 3);
  page.document.hidden = false;
  page.document.dispatchEvent(new Event("visibilitychange"));
  assert.equal(page.heartbeats.length, 4);
});

test("a guest sends no heartbeat", async () => {
  const page = open({ signedIn: false, answersHead: true });
  await page.pass(600_000);
  assert.deepEqual(page.heartbeats, []);
});

test("a heartbeat without a session is the last one and offers to sign in", async () => {
  const page = open({ answersHead: true, heartbeat: 401 });
  await page.pass(0);
  await page.pass(600_000);
  assert.equal(page.heartbeats.length, 1);
  assert.deepEqual([page.me.hidden, page["sign-in"].hidden], [true, false]);
});

const SIGNED_IN = { type: "signed_in" };

test("sign-in opens a window beside the game, and once only", () => {
  const page = open({ signedIn: false });
  for (const _ of [1, 2]) assert(!page.click("sign-in"));
  const [{ how, focused }, ...others] = page.windows;
  assert.deepEqual([how.slice(0, 2), focused], [[`${page["sign-in"].href}/signed-in`, "_blank"], 1]);
  assert.deepEqual(others, []);
  page.windows[0].closed = true;
  assert(!page.click("sign-in"));
  assert.equal(page.windows.length, 2);
});

test("without a window, and for a tab, the link is followed", () => {
  assert(open({ signedIn: false, popups: false }).click("sign-in"));
  const page = open({ signedIn: false });
  for (const key of ["ctrlKey", "metaKey", "shiftKey"]) assert(page.click("sign-in", { [key]: true }));
  assert.deepEqual(page.windows, []);
});

test("a guest who signed in beside the game can be asked, and the play time counts", async () => {
  const page = open({ signedIn: false });
  await page.send(REQUEST);
  page.click("sign-in");
  await page.send(SIGNED_IN, page.windows[0], SITE);
  assert.deepEqual(page.told.splice(0), [refusal("no_account"), [SIGNED_IN, GAME]]);
  assert.deepEqual([page.windows[0].closed, page["sign-in"].hidden, page.heartbeats.length], [true, true, 1]);
  await page.send(REQUEST);
  page.allow.dispatchEvent(new Event("click"));
  await settled();
  assert.deepEqual(page.told, [[CODE, GAME]]);
  assert.deepEqual(page.authorized.map(({ request }) => request), [ADA.request, ADA.request]);
});

test("a player whose session ended signs in beside the game again", async () => {
  const page = open({ authorize: ({ request }) => (request === ADA.request ? CODE : refusal("no_account")[0]) });
  await page.send(REQUEST);
  page.click("sign-in");
  await page.send(SIGNED_IN, page.windows[0], SITE);
  await page.send(REQUEST);
  assert.deepEqual(page.told, [refusal("no_account"), [SIGNED_IN, GAME], [CODE, GAME]]);
});

test("nothing changes for another player, for a guest, and without an answer", async () => {
  const ended = { authorize: () => refusal("no_account")[0] };
  for (const anew of [{ request: "a request of Bob", player: "2" }, {}, null]) {
    const page = open({ ...ended, anew });
    await page.send(REQUEST);
    page.click("sign-in");
    await page.send(SIGNED_IN, page.windows[0], SITE);
    assert.deepEqual(page.told, [refusal("no_account")]);
    assert.deepEqual([page.windows[0].closed, page["sign-in"].hidden], [false, false]);
    assert.deepEqual([page.frame.dataset.request, page.heartbeats.length], ["a signed request", 1]);
  }
});

test("signed_in counts from our own page in that window alone", async () => {
  const page = open({ signedIn: false });
  await page.send(SIGNED_IN, {}, SITE); // before there is a window
  await page.send(SIGNED_IN, null, SITE);
  page.click("sign-in");
  await page.send(SIGNED_IN, page.windows[0], GAME);
  await page.send({ type: "authorized" }, page.windows[0], SITE);
  await page.send(null, page.windows[0], SITE);
  await page.send(SIGNED_IN, {}, SITE);
  await page.send(SIGNED_IN, page.contentWindow, GAME);
  await page.send(SIGNED_IN, page.contentWindow, SITE);
  assert.deepEqual([page.told, page.windows[0].closed], [[], false]);
});
