// Sign-in: the page around the game asks the player and gives the game a code; the game's own server
// exchanges the code and gives this page a token, which stays in this module.

export const { server, clientId } = document.body.dataset;

const REFUSALS = {
  no_account: "You are not signed in. Sign in, in the bar above the game, to keep your scores.",
  access_denied: "You play as a guest: you did not allow the game to know you. Load the page again to be asked again.",
  already_requested: "You were asked already. Load the whole page again to be asked again.",
  invalid_app: "This game is not the one of this page. Tell its developer.",
  invalid_scopes: "This game asked for more than games may see. Tell its developer.",
  server_error: "The identity server has a problem. Load the page again later.",
};

let token = null;

// Returns the player's id. Throws an Error whose message is for the player.
export async function signIn() {
  const response = await requestCode();
  if (response.error) throw new Error(REFUSALS[response.message] ?? `The page refused: ${response.message}`);
  const player = await post("/sign-in", { code: response.code });
  token = player.token;
  return player.id;
}

function requestCode() {
  if (window.parent === window) {
    throw new Error("You play as a guest. Open the game from the community's site to keep your scores.");
  }
  return new Promise((resolve) => {
    window.addEventListener("message", function receive({ data, origin, source }) {
      // Any window can send messages here; a code from another window could be an attacker's.
      if (origin !== server || source !== window.parent || data?.type !== "authorized") return;
      window.removeEventListener("message", receive);
      resolve(data);
    });
    // Never "*": only this origin may receive the message.
    window.top.postMessage({ action: "authorize", client_id: clientId, scopes: ["userinfo"] }, server);
  });
}

// Returns the new list of scores. Throws an Error with the reason.
export async function sendScore(score) {
  return post("/scores", { score }, { Authorization: `Bearer ${token}` });
}

async function post(path, values, headers = {}) {
  const body = JSON.stringify(values);
  const response = await fetch(path, { method: "POST", body, headers }).catch(() => null);
  if (!response) throw new Error("The game's own server cannot be reached.");
  const received = await response.json();
  if (!response.ok) throw new Error(`That did not work: ${received.message}.`);
  return received;
}

// Returns a public profile, null if the account was deleted. Names are not stored, so they are current.
export async function readProfile(id) {
  const response = await fetch(`${server}/api/users/info?id=${id}`).catch(() => null);
  return response?.ok ? (await response.json()).user : null;
}

export function pictureAddress({ id, pfpTimestamp }) {
  return `${server}/pfp/medium/${id}${pfpTimestamp ? `-${pfpTimestamp}` : ""}.webp`;
}
