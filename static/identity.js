// Signs players in, on web pages and in web games. Each identity server has this module; docs/games/browser.md has examples:
//     import { signIn } from "https://id.example.org/static/v1/identity.js"; const player = await signIn({ clientId });

/** A player, as `GET /api/oauth/whois` describes one; with an `email` if the scope has it.
 * @typedef {{ id: number, name: string, pfpTimestamp?: number, email?: string }} Player */
/** A public profile, as `GET /api/users/info` has it. Times are in milliseconds.
 * @typedef {{ id: number, name: string, pfpTimestamp?: number, bio: string, flairs: string[], equippedFlair: string,
 *   playMinutes: number, lastHeartbeat: number, modLevel: number }} Profile */
/** What your server needs to exchange a code, besides its client_secret. Codes of the play page have no redirect_uri.
 * @typedef {{ code: string, code_verifier: string, redirect_uri?: string }} Answer */
/** `redirectUri`: a registered one on this page's origin; else this page without its query. `site`: an origin; else this
 * module's. `scope`: "userinfo", with "email" (not on the play page) and "join" (for tickets). `mode`: "popup" never
 * leaves this page, "redirect" opens no popup. `prompt`: "select_account" asks each time. @template [T=Player]
 * @typedef {{ clientId: string, redirectUri?: string, scope?: string, mode?: "popup" | "redirect", prompt?: string,
 *   exchange?: (answer: Answer) => Promise<T>, site?: string }} Options */
/** A sign-in without its answer. If it `waits`, that is for signIn(), which gets `exchange`.
 * @typedef {Record<"clientId" | "redirectUri" | "site" | "state" | "verifier", string> & { waits: boolean }} Request */

const SITE = new URL(import.meta.url).origin;
const STORED = "identity.js"; // the key in sessionStorage of a Request, while this page is away
const [HELLO_TIMEOUT, WATCH_INTERVAL] = [2000, 200]; // milliseconds
const ERRORS = new Map([
  ["access_denied", "You did not allow this app to know who you are."],
  ["already_requested", "You were asked already. Reload the page to be asked again."],
  ["insecure_context", "You can't sign in at this address. It has to start with https."],
  ["no_account", "You are not signed in. Sign in, in the bar above the game, then try again."],
  ["popup_blocked", "No sign-in window could be opened. Allow popups for this page, then try again."],
  ["popup_closed", "You left before the sign-in was complete. Try again."],
  ["underage_user", "This site does not tell games who you are, because of your age."],
]);
/** @type {[Promise<any> | null, Window | null]} */ let [underway, popup] = [null, null];
let isAnswered = false; // by the play page, which answers once per load: `underway` stays
/** @type {(path: string, body?: URLSearchParams) => Promise<any>} */ let ask = async () => null; // without a token
let returned = takeRedirect();
const onPlayPage = greet(SITE); // asked now: a click can open a popup only if nothing else takes time

/** Signs the player in. On the play page of the site, that page asks; elsewhere a popup opens. If popups are blocked,
 * this page goes away and comes back: the next call, with the same options, has the result. Call it when the player
 * presses a button, or at once if `await needsClick()` is false. The result is the player; or what `exchange` returns,
 * which sends the code to your server. An Error has a `message` for the player, and a `code`: one of ERRORS, or the
 * error of OAuth or the play page. @template [T=Player] @param {Options<T>} options @returns {Promise<T>} */
export function signIn(options) {
  underway ??= begin(options).finally(() => isAnswered || (underway = null));
  popup?.focus();
  return underway;
}

/** Resolves to false where signIn() works without a click: on the play page, and after a redirect. */
export const needsClick = async () => !returned && !(await onPlayPage);

/** Returns the player who signed in here: null if nobody did, access has ended, or `exchange` was used. */
export const whois = /** @returns {Promise<Player | null>} */ async () => (await signedIn())("oauth/whois");

/** Returns a ticket for a game server: for a minute, its address "host:port" or its client id, and a nonce that it
 * made; null where whois() is null. The sign-in had the scope "join". @returns {Promise<string | null>} */
export const ticket = async (/** @type {string} */ server, nonce = "") =>
  (await (await signedIn())("tickets", new URLSearchParams({ server, nonce })))?.ticket ?? null;

/** Returns a public profile; null if no player has this id. @param {number} id @returns {Promise<Profile | null>} */
export const player = async (id, site = SITE) => (await players([id], site))[0] ?? null;

/** Returns up to 100 profiles, without unknown ids. @param {number[]} ids @returns {Promise<Profile[]>} */
export const players = async (ids, site = SITE) =>
  ids.length ? (await send(`${site}/api/users/batch?ids=${ids}`)).users : [];

/** Returns the address of a player's picture, 256, 64 or 16 pixels wide.
 * @param {{ id: number, pfpTimestamp?: number }} player @param {"large" | "medium" | "small"} [size] */
export const pictureOf = ({ id, pfpTimestamp }, size = "medium", site = SITE) =>
  `${site}/pfp/${size}/${pfpTimestamp ? `${id}-${pfpTimestamp}` : id}.webp`;

/** Waits for a sign-in; after one that failed, the next signIn() asks anew. */
const signedIn = () => Promise.resolve(returned?.result ?? underway).catch(() => (returned = null)).then(() => ask);

/** @param {Options<any>} options */
async function begin({ clientId, redirectUri = location.origin + location.pathname, exchange, ...options }) {
  const { scope = "userinfo", prompt = "", mode, site = SITE } = options;
  const last = returned;
  returned = null;
  if (last) return last.result ?? finish(last.request, last.response, exchange);
  if (!crypto.subtle || window.origin === "null") throw failure("insecure_context");
  const isHere = parent !== window && (await (site === SITE ? onPlayPage : greet(site)));
  if (!isHere) popup = openPopup(mode); // before anything takes time: browsers open windows for clicks only
  const [state, verifier] = [crypto.randomUUID(), crypto.randomUUID() + crypto.randomUUID()];
  const request = { clientId, redirectUri: isHere ? "" : redirectUri, site, state, verifier, waits: !!exchange };
  const response = await (isHere ? askPlayPage(request, scope) : askSite(request, scope, prompt));
  const result = await finish(request, response, exchange);
  isAnswered = isHere;
  return result;
}

/** Returns whether the play page of a site is around this page: no other page answers. @param {string} site */
async function greet(site) {
  const origins = location.ancestorOrigins; // some browsers do not tell
  if (parent === window || parent !== top || (origins && origins[0] !== site)) return false;
  const deadline = performance.now() + (origins ? Infinity : HELLO_TIMEOUT);
  return !!(await receive(parent, site, "hello", { action: "hello" }, () => performance.now() > deadline));
}

/** @param {Request} request @param {string} scope */ async function askPlayPage(request, scope) {
  const scopes = ["userinfo", ...scope.split(" ").filter((each) => each === "join")];
  const asked = { client_id: request.clientId, scopes, ...(await challengeOf(request)) };
  const { error, message, code } = await receive(parent, request.site, "authorized", { action: "authorize", ...asked });
  return error ? { error: message } : { code };
}

/** Returns a popup, or null where this page has to go away. @param {"popup" | "redirect"} [mode] */
function openPopup(mode) {
  const stays = parent !== window || mode === "popup";
  const mayOpen = (stays || mode !== "redirect") && !window.crossOriginIsolated; // isolated pages hear from no popup
  const opened = mayOpen ? open("", "", "popup,width=480,height=720") : null;
  if (!opened && stays) throw failure("popup_blocked");
  return opened;
}

/** A page keeps no refresh token. @param {Request} request @param {string} asked @param {string} prompt */
async function askSite(request, asked, prompt, scope = asked.replace(/ ?offline_access/g, "").trim()) {
  const { clientId: client_id, redirectUri: redirect_uri, state } = request;
  const query = { response_type: "code", client_id, redirect_uri, scope, prompt, state, ...await challengeOf(request) };
  const address = `${request.site}/oauth/authorize?${new URLSearchParams(query)}&response_mode=`;
  if (popup) return askInPopup(popup, `${address}web_message`, request);
  sessionStorage.setItem(STORED, JSON.stringify(request));
  location.assign(`${address}query`);
  return new Promise((_, end) => addEventListener("pageshow", (e) => e.persisted && end(failure("popup_closed"))));
}

/** @param {Window} opened @param {string} address @param {Request} request */
async function askInPopup(opened, address, { site, state }) {
  opened.location.replace(address);
  const answer = await receive(opened, site, "authorization_response", null, () => opened.closed);
  opened.close();
  popup = null;
  const { response } = answer ?? { response: { error: "popup_closed", state } };
  return response.state === state ? response : { error: "state_mismatch" };
}

function takeRedirect() {
  const address = new URL(location.href);
  const { state, iss, ...received } = Object.fromEntries(address.searchParams);
  const request = state && parent === window ? JSON.parse(sessionStorage.getItem(STORED) ?? "null") : null;
  if (!request || request.state !== state) return null; // RFC 6749 10.12: the answer may be an attacker's
  sessionStorage.removeItem(STORED);
  for (const name of ["code", "state", "iss", "error", "error_description"]) address.searchParams.delete(name);
  history.replaceState(history.state, "", address);
  // RFC 9700 4.4: a site may have sent the player on to another one, and would be given that one's code.
  const response = iss === request.site ? received : { error: "issuer_mismatch", error_description: `iss is ${iss}` };
  const result = request.waits ? null : finish(request, response);
  result?.catch(() => {}); // the next signIn() rejects with it
  return { request, response, result };
}

/** Exchanges a code; returns the player, or what `exchange` returns. @param {Request} request
 * @param {Record<string, string>} response @param {Options<any>["exchange"]} [exchange] @returns {Promise<any>} */
async function finish({ site, clientId, redirectUri, verifier }, { code, error, error_description }, exchange) {
  if (!code) throw failure(error ?? "server_error", error_description);
  const answer = { code, code_verifier: verifier, ...(redirectUri && { redirect_uri: redirectUri }) };
  if (exchange) return exchange(answer);
  const body = new URLSearchParams({ grant_type: "authorization_code", client_id: clientId, ...answer });
  const { access_token: token } = await send(`${site}/api/oauth/token`, { method: "POST", body });
  const headers = { Authorization: `Bearer ${token}` };
  ask = (path, sent) => send(`${site}/api/${path}`, { method: sent ? "POST" : "GET", headers, body: sent }, 401);
  return ask(`oauth/whois?client_id=${clientId}`);
}

/** @param {string} address @param {RequestInit} [request] @param {number} [none] the status that means null */
async function send(address, request, none) {
  const response = await fetch(address, request).catch(() => Response.error());
  const body = await response.json().catch(() => null);
  if (response.status === none) return null;
  if (!response.ok || !body) throw failure("server_error", body?.message);
  return body;
}

/** Posts a message, and resolves to the first one of a type that comes back; to null once `isOver` returns true.
 * @param {Window} other @param {string} site @param {string} type @param {object | null} message
 * @param {() => boolean} [isOver] @returns {Promise<any>} */
function receive(other, site, type, message, isOver = () => false) {
  return new Promise((resolve) => {
    const listening = new AbortController();
    const timer = setInterval(() => isOver() && end(null), WATCH_INTERVAL);
    const end = (/** @type {any} */ data) => [clearInterval(timer), listening.abort(), resolve(data)];
    addEventListener("message", ({ source, origin, data }) => {
      if (source === other && origin === site && data?.type === type) end(data);
    }, listening);
    if (message) other.postMessage(message, site);
  });
}

/** Returns the PKCE parameters (RFC 7636 4.3). @param {Request} request */
async function challengeOf({ verifier }) {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier));
  const base64 = btoa(String.fromCharCode(...new Uint8Array(digest))).replaceAll("=", "");
  return { code_challenge: base64.replaceAll("+", "-").replaceAll("/", "_"), code_challenge_method: "S256" };
}

/** @param {string} code @param {unknown} [cause] what the server said, for the developer */
function failure(code, cause) {
  const message = ERRORS.get(code) ?? `Signing in did not work (${code}). Try again later.`;
  return Object.assign(new Error(message, { cause }), { code });
}
