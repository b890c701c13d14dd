// The messages and requests of static/identity.js, in Node with stand-ins for the windows and the server.
// Sign-ins at a running server, in popups, frames and redirects, have their tests in test_popups.py.
import assert from "node:assert/strict";
import { createHash, randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { stoppedClock } from "./clock.mjs";

const SITE = "https://id.example";
const GAME = "https://game.example/my%20game/";
const SCRIPT = readFileSync(new URL("../../../static/identity.js", import.meta.url), "utf8")
  .replaceAll("import.meta.url", JSON.stringify(`${SITE}/static/v1/identity.js`))
  .replaceAll(/^export /gm, "");
const ADA = { id: 1, name: "ada", pfpTimestamp: 5 };
const OPTIONS = { clientId: "a game" };
// Node computes digests in another thread, which `settled` would not wait for.
const CRYPTO = {
  randomUUID,
  subtle: { digest: async (_, data) => createHash("sha256").update(data).digest() },
};
const settled = () => new Promise(setImmediate);
const codeOf = (promise) => promise.then(() => assert.fail("it did not reject"), ({ code }) => code);

// A window of another page: `posted` are the messages that it got, `visited` the addresses that it loaded.
function otherWindow() {
  const [posted, visited] = [[], []];
  return {
    posted,
    visited,
    closed: false,
    postMessage: (data, origin) => posted.push([data, origin]),
    location: { replace: (address) => visited.push(new URL(address)) },
    close() { this.closed = true; },
    focus() {},
  };
}

// Loads identity.js in a page at this address: alone in its window, or in a frame of `parent`.
function load(options = {}) {
  const { address = GAME, parent, ancestors, top = parent, popup = otherWindow(), stored, answers } = options;
  const clock = stoppedClock();
  const window = new EventTarget();
  const page = { window, parent: parent ?? window, popup, opened: 0, listeners: 0 };
  page.storage = new Map(stored && [["identity.js", JSON.stringify(stored)]]);
  page.requests = [];
  page.answers = {
    "/api/oauth/token": [200, { access_token: "a token" }],
    "/api/oauth/whois": [200, ADA],
    "/api/users/batch": [200, { users: [] }],
    ...answers,
  };
  page.address = address;
  const { origin, pathname } = new URL(address);
  page.location = { href: address, origin, pathname, ancestorOrigins: ancestors };
  page.location.assign = (next) => { page.address = next; };
  const globals = {
    window: Object.assign(window, { origin }, options.window),
    parent: page.parent,
    top: top ?? window,
    location: page.location,
    crypto: options.crypto ?? CRYPTO,
    history: { replaceState: (state, title, next) => { page.address = String(next); } },
    sessionStorage: {
      getItem: (key) => page.storage.get(key) ?? null,
      setItem: (key, value) => page.storage.set(key, value),
      removeItem: (key) => page.storage.delete(key),
    },
    performance: clock.performance,
    ...clock.functions,
    open: () => { page.opened += 1; return page.popup; },
    addEventListener(type, listener, options) {
      page.listeners += 1;
      options?.signal.addEventListener("abort", () => { page.listeners -= 1; });
      window.addEventListener(type, listener, options);
    },
    async fetch(url, { body, headers } = {}) {
      const { origin: site, pathname: path, search, searchParams } = new URL(url);
      const sent = body ?? (headers ? [...searchParams, ...Object.entries(headers)] : null);
      page.requests.push([path, sent ? Object.fromEntries(sent) : search]);
      if (site !== SITE || !page.answers[path]) throw new TypeError("no connection");
      const [status, answer] = page.answers[path];
      return { status, ok: status < 400, json: async () => answer };
    },
  };
  page.pass = async (milliseconds) => {
    clock.pass(milliseconds);
    await settled();
  };
  page.send = async (data, source = popup, from = SITE) => {
    window.dispatchEvent(Object.assign(new Event("message"), { data, source, origin: from }));
    await settled();
  };
  page.answerPopup = (response) => {
    const state = popup.visited.at(-1).searchParams.get("state");
    return page.send({ type: "authorization_response", response: { state, ...response } });
  };
  page.paths = () => page.requests.map(([path]) => path);
  const names = "{ signIn, needsClick, whois, ticket, player, players, pictureOf }";
  page.identity = new Function(...Object.keys(globals), `${SCRIPT}; return ${names};`)(...Object.values(globals));
  return page;
}

// -- a popup --------------------------------------------------------------------------------------

test("a popup gets the request, and its code is exchanged", async () => {
  const page = load({ address: `${GAME}?level=3#top` });
  const scope = "userinfo offline_access email"; // a page never asks for a refresh token
  const player = page.identity.signIn({ ...OPTIONS, scope, prompt: "select_account" });
  await page.pass(0);
  const [{ origin, pathname, searchParams }] = page.popup.visited;
  assert.equal(origin + pathname, `${SITE}/oauth/authorize`);
  const { state, code_challenge, ...asked } = Object.fromEntries(searchParams);
  assert.deepEqual(asked, {
    response_type: "code",
    client_id: "a game",
    redirect_uri: GAME,
    scope: "userinfo email",
    prompt: "select_account",
    code_challenge_method: "S256",
    response_mode: "web_message",
  });
  await page.answerPopup({ code: "a code" });
  assert.deepEqual(await player, ADA);
  const { code_verifier, ...exchanged } = page.requests[0][1];
  assert.deepEqual(exchanged, {
    grant_type: "authorization_code",
    client_id: "a game",
    code: "a code",
    redirect_uri: GAME,
  });
  assert.equal(createHash("sha256").update(code_verifier).digest("base64url"), code_challenge);
  assert.match(state, /^[0-9a-f-]{36}$/);
  assert.match(code_verifier, /^[0-9a-f-]{72}$/);
  const whois = { client_id: "a game", Authorization: "Bearer a token" };
  assert.deepEqual(page.requests[1], ["/api/oauth/whois", whois]);
  assert.deepEqual([page.popup.closed, page.listeners, page.storage.size], [true, 0, 0]);
});

test("the popup opens before anything takes time, except where the module asks for hello", async () => {
  const page = load();
  page.identity.signIn(OPTIONS);
  assert.equal(page.opened, 1);
  const framed = load({ parent: otherWindow(), ancestors: ["https://host.example"] });
  framed.identity.signIn(OPTIONS);
  for (let i = 0; i < 5; i += 1) await null;
  assert.equal(framed.opened, 1);
});

test("a closed popup and a refusal have codes, sentences and no listener left", async () => {
  const page = load();
  let player = page.identity.signIn(OPTIONS);
  await page.pass(0);
  page.popup.closed = true;
  const closed = assert.rejects(player, { message: "You left before the sign-in was complete. Try again." });
  await page.pass(200);
  await closed;
  player = page.identity.signIn(OPTIONS);
  page.popup.closed = false;
  await page.pass(0);
  const refused = codeOf(player);
  await page.answerPopup({ error: "access_denied" });
  assert.equal(await refused, "access_denied");
  assert.deepEqual([page.listeners, page.requests], [0, []]);
  assert.equal(await page.identity.whois(), null);
});

test("a second call gets the answer of the first", async () => {
  const page = load();
  const players = [page.identity.signIn(OPTIONS), page.identity.signIn(OPTIONS)];
  await page.pass(0);
  await page.answerPopup({ code: "a code" });
  assert.deepEqual(await Promise.all(players), [ADA, ADA]);
  assert.equal(page.opened, 1);
});

test("an answer with another state is state_mismatch and not exchanged (RFC 9700 4.7.1)", async () => {
  const page = load();
  const code = codeOf(page.identity.signIn(OPTIONS));
  await page.pass(0);
  await page.answerPopup({ code: "a code", state: "another" });
  assert.equal(await code, "state_mismatch");
  assert.deepEqual(page.requests, []);
});

test("messages of other windows, origins and types are ignored (RFC 9700 4.17.2)", async () => {
  const page = load();
  const player = page.identity.signIn(OPTIONS);
  await page.pass(0);
  const state = page.popup.visited[0].searchParams.get("state");
  const forged = { type: "authorization_response", response: { code: "forged", state } };
  await page.send(forged, page.window);
  await page.send(forged, page.popup, "https://evil.example");
  await page.send({ ...forged, type: "another" });
  await page.send(null);
  assert.deepEqual(page.requests, []);
  await page.answerPopup({ code: "a code" });
  assert.deepEqual(await player, ADA);
});

test("a code goes to `exchange` instead, and nobody is known here", async () => {
  const page = load();
  const result = page.identity.signIn({ ...OPTIONS, exchange: async (grant) => ({ grant }) });
  await page.pass(0);
  await page.answerPopup({ code: "a code" });
  const { grant } = await result;
  assert.deepEqual(Object.keys(grant).sort(), ["code", "code_verifier", "redirect_uri"]);
  assert.deepEqual(page.requests, []);
  assert.equal(await page.identity.whois(), null);
});

test("a page without encryption or without an origin is insecure_context", async () => {
  for (const options of [{ crypto: {} }, { window: { origin: "null" } }]) {
    const page = load(options);
    assert.equal(await codeOf(page.identity.signIn(OPTIONS)), "insecure_context");
    assert.equal(page.opened, 0);
  }
});

test("a redirect replaces a blocked popup, unless the mode is popup", async () => {
  for (const [mode, window, opened] of [
    [undefined, {}, 1],
    ["redirect", {}, 0],
    [undefined, { crossOriginIsolated: true }, 0], // an isolated page hears from no popup
  ]) {
    const page = load({ popup: null, window });
    page.identity.signIn({ ...OPTIONS, mode });
    await page.pass(0);
    assert.equal(page.opened, opened);
    assert.equal(new URL(page.address).searchParams.get("response_mode"), "query");
  }
  const page = load({ popup: null });
  assert.equal(await codeOf(page.identity.signIn({ ...OPTIONS, mode: "popup" })), "popup_blocked");
  assert.equal(page.address, GAME);
});

// -- a redirect -----------------------------------------------------------------------------------

// Signs in by a redirect; returns what the page stored.
async function goAway(options = {}) {
  const page = load({ popup: null });
  const player = page.identity.signIn({ ...OPTIONS, ...options });
  await page.pass(0);
  return { page, player, stored: JSON.parse(page.storage.get("identity.js")) };
}

// Loads the page that a redirect leads to; `answers` are those of the server.
async function comeBack(options, response, answers) {
  const { stored } = await goAway(options);
  const query = new URLSearchParams({ iss: SITE, state: stored.state, ...response });
  return load({ address: `${GAME}?level=3&${query}`, stored, answers });
}

test("a redirect comes back with the player, and the address has no code", async () => {
  const page = await comeBack({}, { code: "a code" });
  assert.deepEqual([page.address, page.storage.size], [`${GAME}?level=3`, 0]);
  assert.deepEqual(await page.identity.whois(), ADA);
});

test("a redirect for signIn() does not need a click", async () => {
  const page = await comeBack({}, { code: "a code" });
  assert.equal(await page.identity.needsClick(), false);
  assert.deepEqual(await page.identity.signIn(OPTIONS), ADA);
});

test("a cancelled redirect is no player, or told once", async () => {
  let page = await comeBack({}, { error: "access_denied" });
  assert.equal(await page.identity.whois(), null);
  page.identity.signIn(OPTIONS); // asks again
  assert.equal(page.opened, 1);
  page = await comeBack({}, { error: "access_denied" });
  assert.equal(await codeOf(page.identity.signIn(OPTIONS)), "access_denied");
  assert.equal(page.opened, 0);
  page.identity.signIn(OPTIONS);
  assert.equal(page.opened, 1);
});

test("a redirect for `exchange` waits for the next call", async () => {
  const exchange = async (grant) => ({ grant });
  const page = await comeBack({ exchange }, { code: "a code" });
  assert.equal(await page.identity.whois(), null);
  assert.equal(await page.identity.needsClick(), false);
  const { grant } = await page.identity.signIn({ ...OPTIONS, exchange });
  assert.deepEqual([grant.code, grant.redirect_uri, grant.code_verifier.length], ["a code", GAME, 72]);
  assert.deepEqual(page.requests, []);
});

test("an answer of another site is issuer_mismatch and not exchanged (RFC 9700 4.4)", async () => {
  const page = await comeBack({}, { code: "a code", iss: "https://evil.example" });
  assert.equal(await codeOf(page.identity.signIn(OPTIONS)), "issuer_mismatch");
  assert.deepEqual(page.requests, []);
});

test("an answer without a request, or to another one, is ignored (RFC 9700 4.7.1)", async () => {
  const { stored } = await goAway();
  for (const request of [undefined, stored]) {
    const address = `${GAME}?code=a&iss=${SITE}&state=another`;
    const page = load({ address, stored: request });
    assert.equal(await page.identity.whois(), null);
    assert.deepEqual([page.address, page.requests], [address, []]);
    assert.equal(await page.identity.needsClick(), true);
  }
  const query = new URLSearchParams({ code: "a", iss: SITE, state: stored.state });
  const framed = load({ address: `${GAME}?${query}`, stored, parent: otherWindow(), ancestors: [GAME] });
  assert.equal(await framed.identity.whois(), null);
  assert.deepEqual(framed.requests, []);
});

test("the page shown again by Back (bfcache) ends its redirect", async () => {
  const { page, player } = await goAway();
  const code = codeOf(player);
  page.window.dispatchEvent(Object.assign(new Event("pageshow"), { persisted: true }));
  assert.equal(await code, "popup_closed");
});

// -- frames ---------------------------------------------------------------------------------------

test("the play page is asked without a popup and answers once per load", async () => {
  const parent = otherWindow();
  const page = load({ parent, ancestors: [SITE] });
  assert.deepEqual(parent.posted.shift(), [{ action: "hello" }, SITE]);
  await page.send({ type: "hello" }, parent);
  assert.equal(await page.identity.needsClick(), false);
  const player = page.identity.signIn(OPTIONS);
  await settled();
  const [[{ code_challenge, ...asked }, origin]] = parent.posted;
  assert.equal(origin, SITE);
  const request = { action: "authorize", client_id: "a game", scopes: ["userinfo"] };
  assert.deepEqual(asked, { ...request, code_challenge_method: "S256" });
  await page.send({ type: "authorized", error: false, code: "a code" }, parent);
  assert.deepEqual(await player, ADA);
  const { code_verifier, ...exchanged } = page.requests[0][1];
  assert.deepEqual(exchanged, { grant_type: "authorization_code", client_id: "a game", code: "a code" });
  assert.equal(createHash("sha256").update(code_verifier).digest("base64url"), code_challenge);
  assert.deepEqual(await page.identity.signIn(OPTIONS), ADA);
  assert.deepEqual([parent.posted.length, page.opened], [1, 0]);
});

test("a refusal of the play page is an error with its message as the code", async () => {
  const parent = otherWindow();
  const page = load({ parent, ancestors: [SITE] });
  await page.send({ type: "hello" }, parent);
  for (const message of ["access_denied", "already_requested", "no_account"]) {
    const code = codeOf(page.identity.signIn(OPTIONS));
    await settled();
    await page.send({ type: "authorized", error: true, message }, parent);
    assert.equal(await code, message);
  }
  assert.equal(parent.posted.length, 4);
});

test("a frame hears the play page alone, and tells its unknown refusals (RFC 9700 4.17.2)", async () => {
  const parent = otherWindow();
  const page = load({ parent, ancestors: [SITE] });
  await page.send({ type: "hello" }, parent);
  const message = "Signing in did not work (news_to_us). Try again later.";
  const refused = assert.rejects(page.identity.signIn(OPTIONS), { message });
  await settled();
  const forged = { type: "authorized", error: false, code: "forged" };
  await page.send(forged, otherWindow());
  await page.send(forged, parent, "https://evil.example");
  assert.deepEqual(page.requests, []);
  await page.send({ type: "authorized", error: true, message: "news_to_us" }, parent);
  await refused;
});

test("where the browser does not tell, hello finds the play page, and its absence after two seconds", async () => {
  const parent = otherWindow();
  const played = load({ parent });
  await played.send({ type: "hello" }, parent);
  assert.equal(await played.identity.needsClick(), false);
  const page = load({ parent });
  const needed = page.identity.needsClick();
  await page.send({ type: "hello" }, parent, "https://host.example");
  await page.pass(2200);
  assert.equal(await needed, true);
  page.identity.signIn(OPTIONS);
  await settled();
  assert.equal(page.opened, 1);
});

test("a frame in a frame of the site is not on the play page", async () => {
  const parent = otherWindow();
  const page = load({ parent, top: otherWindow(), ancestors: [SITE] });
  assert.equal(await page.identity.needsClick(), true);
  assert.deepEqual(parent.posted, []);
});

test("a blocked popup in another host's frame is popup_blocked, not a redirect", async () => {
  const page = load({ parent: otherWindow(), ancestors: ["https://host.example"], popup: null });
  assert.equal(await codeOf(page.identity.signIn(OPTIONS)), "popup_blocked");
  assert.equal(page.address, GAME);
});

// -- the server -----------------------------------------------------------------------------------

test("access that has ended is no player", async () => {
  const page = await comeBack({}, { code: "a code" });
  assert.deepEqual(await page.identity.whois(), ADA);
  page.answers["/api/oauth/whois"] = [401, { message: "revoked" }];
  assert.equal(await page.identity.whois(), null);
});

test("a ticket is asked for with the token, and is null without one", async () => {
  const page = await comeBack({}, { code: "a code" });
  page.answers["/api/tickets"] = [200, { ticket: "a ticket", expires_in: 60 }];
  assert.equal(await page.identity.ticket("a:1", "f3a0"), "a ticket");
  assert.deepEqual(page.requests.at(-1), ["/api/tickets", { server: "a:1", nonce: "f3a0" }]);
  page.answers["/api/tickets"] = [401, { message: "revoked" }];
  assert.equal(await page.identity.ticket("a:1"), null);
  page.answers["/api/tickets"] = [403, { message: "no scope join" }];
  await assert.rejects(page.identity.ticket("a:1"), { code: "server_error", cause: "no scope join" });
  assert.equal(await load().identity.ticket("a:1"), null);
});

test("an unreachable server and a refused code are server_error with the server's words", async () => {
  for (const answer of [undefined, [400, { message: "code expired" }]]) {
    const page = await comeBack({}, { code: "a code" }, { "/api/oauth/token": answer });
    await assert.rejects(page.identity.signIn(OPTIONS), { code: "server_error", cause: answer?.[1].message });
  }
});

test("profiles are read in one request, and no request for none", async () => {
  const page = load();
  page.answers["/api/users/batch"] = [200, { users: [ADA] }];
  assert.deepEqual(await page.identity.players([1, 99]), [ADA]);
  assert.deepEqual(await page.identity.player(1), ADA);
  assert.deepEqual(await page.identity.players([]), []);
  page.answers["/api/users/batch"] = [200, { users: [] }];
  assert.equal(await page.identity.player(99), null);
  assert.deepEqual(page.requests.map(([path, query]) => path + query), [
    "/api/users/batch?ids=1,99",
    "/api/users/batch?ids=1",
    "/api/users/batch?ids=99",
  ]);
  assert.equal(page.identity.pictureOf(ADA), `${SITE}/pfp/medium/1-5.webp`);
  assert.equal(page.identity.pictureOf({ id: 1 }, "large"), `${SITE}/pfp/large/1.webp`);
});
