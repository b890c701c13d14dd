// Sign-in for games in a browser, with an account of the site that serves this module:
//
//     import { signIn, pictureOf } from "https://id.example.org/static/v1/identity.js";
//     const player = await signIn({ clientId: "0123456789abcdef" }); // when a button is pressed
//
// On the site's play page it asks that page. Anywhere else it opens a popup, also in a frame of another host, and where
// popups are blocked it redirects the browser. Each way uses PKCE (RFC 7636): a public client needs no server.

/** @typedef {{id: number, name: string, pfpTimestamp?: number, email?: string}} Player */
/** @typedef {Player & {bio: string, flairs: string[], equippedFlair: string, playMinutes: number}} Profile */
/** @typedef {{code: string, code_verifier: string, redirect_uri?: string}} Grant */
/** @typedef {{code?: string | null, error?: string | null}} Answer */
/** @typedef {object} SignInOptions
 * @property {string} clientId
 * @property {string} [redirectUri] a registered one of this page's origin; default: this page's address without query
 * @property {string} [scope] "userinfo" (the default) or "email", for the email address as well
 * @property {"popup" | "redirect"} [mode] default: a popup
 * @property {(grant: Grant) => Promise<any>} [exchange] sends the grant to the game's own server, which has the secret
 */

const SITE = new URL(import.meta.url).origin;
const KEPT = "identity-sign-in"; // in sessionStorage, while the browser is redirected
const PATIENCE = 2000; // milliseconds until a page around this one is taken to be no play page
const SENTENCES = /** @type {Record<string, string>} */ ({
  access_denied: "You pressed Cancel, so this game does not know who you are.",
  already_requested: "This game asked before. Load the whole page again to be asked again.",
  insecure_context: "Signing in works only on pages with https.",
  no_account: "You are not signed in. Use the link in the bar above the game.",
  popup_blocked: "Your browser blocked the window. Allow popups for this page, then try again.",
  popup_closed: "The window was closed before you answered. Try again.",
});

/** An error whose message is for the player. Its `code` is the server's, or a key of SENTENCES. */
export class SignInError extends Error {
  /** @param {string} code @param {unknown} [cause] what the server said, for the developer */
  constructor(code, cause) {
    super(SENTENCES[code] ?? `Signing in did not work (${code}). Try again later.`, { cause });
    this.code = code;
  }
}

let token = ""; // in memory only: a page's storage is open to every script on its origin
let running = /** @type {Promise<any> | null} */ (null); // a second call while the player is asked gets the same answer
const top = window.top === window ? null : window.top; // of a page in a frame
const isPlayPage = askForPlayPage();
let returned = takeReturned();
window.addEventListener("pageshow", ({ persisted }) => persisted && (running = null)); // by Back, without an answer

/** Sign the player in, and return the Player, or what `exchange` returns. Call it when a button is pressed: otherwise
 * browsers block the popup. After a redirect, whois() or another call finishes what was begun. Throws SignInError.
 * @param {SignInOptions} options @returns {Promise<any>} */
export function signIn(options) {
  running ??= start(options).finally(() => (running = null));
  return running;
}

/** Return false where signIn() needs no press of a button: on the play page, and after a redirect. */
export async function needsClick() {
  return !returned && !(await isPlayPage);
}

/** Return who signed in here in the last ten minutes, or null. @returns {Promise<Player | null>} */
export async function whois() {
  if (returned && !returned.exchanged) await signIn({ clientId: returned.clientId }).catch(() => null);
  if (!token) return null;
  const response = await fetch(`${SITE}/api/oauth/whois`, { headers: { Authorization: `Bearer ${token}` } });
  return response.ok ? response.json() : null;
}

/** Return the public profile of a player, or null. @param {number} id */
export async function player(id) {
  return (await players([id]))[0] ?? null;
}

/** Return the public profiles of up to 100 players, without unknown ones. @param {number[]} ids */
export async function players(ids) {
  if (ids.length === 0) return [];
  const response = await fetch(`${SITE}/api/users/batch?ids=${ids.join()}`);
  const { message, users } = await response.json();
  if (!response.ok) throw new Error(message);
  return /** @type {Profile[]} */ (users);
}

/** Return the address of a picture: 256, 64 or 16 pixels on each side.
 * @param {{id: number, pfpTimestamp?: number}} player @param {"large" | "medium" | "small"} [size] */
export function pictureOf({ id, pfpTimestamp }, size = "medium") {
  return `${SITE}/pfp/${size}/${id}${pfpTimestamp ? `-${pfpTimestamp}` : ""}.webp`;
}

/** @param {SignInOptions} options */
async function start(options) {
  if (!window.crypto.subtle || window.origin === "null") throw new SignInError("insecure_context");
  const answer = returned;
  returned = null;
  if (answer) return finish(answer, answer.verifier, options, answer.redirectUri);
  const verifier = randomText();
  if (top && (await isPlayPage)) return finish(await askPlayPage(options, verifier), verifier, options);
  // Opened before anything else is waited for: browsers allow it only for some seconds after a click.
  const mayOpen = (top || options.mode !== "redirect") && !window.crossOriginIsolated; // such pages hear nothing
  const popup = mayOpen ? window.open("", "", "popup,width=480,height=760") : null;
  if (!popup && top) throw new SignInError("popup_blocked"); // the site cannot be shown in a frame
  const redirectUri = options.redirectUri ?? location.origin + location.pathname;
  const request = { ...(await requestOf(options, verifier)), redirect_uri: redirectUri, state: randomText() };
  const mode = popup && { response_mode: "web_message" };
  const query = new URLSearchParams({ response_type: "code", ...request, ...mode });
  const address = `${SITE}/oauth/authorize?${query}`;
  if (popup) return finish(await askPopup(popup, address, request.state), verifier, options, redirectUri);
  const { clientId, exchange } = options;
  const kept = { state: request.state, verifier, redirectUri, clientId, exchanged: Boolean(exchange) };
  sessionStorage.setItem(KEPT, JSON.stringify(kept));
  location.assign(address);
  return new Promise(() => {}); // the page goes
}

/** @param {SignInOptions} options @param {string} verifier */
async function requestOf({ clientId, scope = "userinfo" }, verifier) {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier));
  const challenge = base64url(new Uint8Array(digest));
  return { client_id: clientId, scope, code_challenge: challenge, code_challenge_method: "S256" };
}

/** @param {Window} popup @param {string} address @param {string} state @returns {Promise<Answer>} */
async function askPopup(popup, address, state) {
  popup.location.href = address;
  const closed = () => popup.closed && new SignInError("popup_closed");
  const { response } = await messageFrom(popup, "authorization_response", closed);
  popup.close();
  return response?.state === state ? response : { error: "state_mismatch" };
}

/** @param {SignInOptions} options @param {string} verifier @returns {Promise<Answer>} */
async function askPlayPage(options, verifier) {
  const message = { action: "authorize", scopes: ["userinfo"], ...(await requestOf(options, verifier)) };
  top?.postMessage(message, SITE);
  const { error, message: reason, code } = await messageFrom(top, "authorized");
  return error ? { error: reason } : { code };
}

/** At once, so that the answer is there when a button is pressed. @returns {Promise<boolean>} */
async function askForPlayPage() {
  const origins = location.ancestorOrigins; // not in every browser; the last one is the top window's
  if (!top || (origins && origins[origins.length - 1] !== SITE)) return false;
  top.postMessage({ action: "hello" }, SITE);
  const end = performance.now() + PATIENCE;
  const late = () => performance.now() > end && new Error("no answer");
  return messageFrom(top, "hello", late).then(() => true, () => false);
}

/** @param {Window | null} sender @param {string} type @param {() => Error | false} [problem] @returns {Promise<any>} */
function messageFrom(sender, type, problem = () => false) {
  return new Promise((resolve, reject) => {
    const watch = setInterval(() => problem() && stop(() => reject(problem())), 300); // milliseconds
    // Any window can send messages here; a code from another one could be an attacker's.
    const receive = (/** @type {MessageEvent} */ { data, origin, source }) =>
      origin === SITE && source === sender && data?.type === type && stop(() => resolve(data));
    const stop = (/** @type {() => void} */ settle) => {
      clearInterval(watch);
      window.removeEventListener("message", receive);
      settle();
    };
    window.addEventListener("message", receive);
  });
}

/** @param {Answer} answer @param {string} verifier @param {SignInOptions} options @param {string} [redirectUri] */
async function finish({ code, error }, verifier, { clientId, exchange }, redirectUri) {
  if (!code) throw new SignInError(error ?? "server_error");
  const grant = { code, code_verifier: verifier, ...(redirectUri && { redirect_uri: redirectUri }) };
  if (exchange) return exchange(grant);
  const form = { grant_type: "authorization_code", client_id: clientId, ...grant };
  const sent = fetch(`${SITE}/api/oauth/token`, { method: "POST", body: new URLSearchParams(form) });
  const body = await sent.then((response) => response.json()).catch((cause) => ({ message: cause }));
  if (!body.access_token) throw new SignInError("server_error", body.message);
  token = body.access_token;
  return whois();
}

function takeReturned() {
  const query = new URLSearchParams(location.search);
  let kept;
  try {
    kept = JSON.parse(sessionStorage.getItem(KEPT) ?? "{}");
  } catch {
    return null; // the browser forbids storage here
  }
  if (!kept.state || query.get("state") !== kept.state) return null; // not the answer to a request of this tab
  sessionStorage.removeItem(KEPT);
  const answer = { code: query.get("code"), error: query.get("error") };
  for (const name of ["code", "state", "error", "error_description"]) query.delete(name);
  history.replaceState(history.state, "", `${location.pathname}?${query}`.replace(/\?$/, "") + location.hash);
  return { ...kept, ...answer };
}

const randomText = () => base64url(crypto.getRandomValues(new Uint8Array(32)));

/** @param {Uint8Array} bytes */
function base64url(bytes) {
  return btoa(String.fromCharCode(...bytes)).replace(/[+/=]/g, (each) => ({ "+": "-", "/": "_" })[each] ?? "");
}
