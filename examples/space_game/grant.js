// Sign-in: identity.js, which the identity server has, asks for the player's consent and gets a code; the game's own
// server exchanges the code and gives this page a token, which stays in this module.

const { server, clientId } = document.body.dataset;

const REFUSALS = {
  no_account: "You are not signed in. Sign in, in the bar above the game, to keep your scores.",
  access_denied: "You play as a guest: you did not allow the game to know you. Load the page again to be asked again.",
  already_requested: "You were asked already. Load the whole page again to be asked again.",
  invalid_app: "This game is not the one of this page. Tell its developer.",
  invalid_scopes: "This game asked for more than games may see. Tell its developer.",
  server_error: "The identity server has a problem. Load the page again later.",
};

// Not a static import: without the identity server there are no names, but there is still a game.
const identity = import(`${server}/static/v1/identity.js`).catch(() => null);
let token = null;

// Returns whether signIn() has to wait for a click, which it does outside of the community's site.
export async function needsClick() {
  return (await identity)?.needsClick() ?? false;
}

// Returns the player's id. Throws an Error whose message is for the player.
export async function signIn() {
  const module = await identity;
  if (!module) throw new Error("You play as a guest: the identity server cannot be reached.");
  // Not a redirect: the flight would be lost.
  const player = await module.signIn({ clientId, scope: "userinfo join", mode: "popup", exchange }).catch((error) => {
    throw new Error(REFUSALS[error.code] ?? error.message);
  });
  token = player.token;
  return player.id;
}

function exchange({ code, code_verifier }) {
  return post("/sign-in", { code, code_verifier });
}

// Returns the new list of scores. Throws an Error with the reason.
export async function sendScore(score) {
  return post("/scores", { score }, { Authorization: `Bearer ${token}` });
}

// Returns a ticket for one connection to the chat, whose nonce this is. Throws an Error with the reason.
export async function getTicket(nonce) {
  return (await post("/ticket", { nonce }, { Authorization: `Bearer ${token}` })).ticket;
}

async function post(path, values, headers = {}) {
  const body = JSON.stringify(values);
  const response = await fetch(path, { method: "POST", body, headers }).catch(() => null);
  if (!response) throw new Error("The game's own server cannot be reached.");
  const received = await response.json();
  if (!response.ok) throw new Error(`That did not work: ${received.message}.`);
  return received;
}

// Returns public profiles by id, each with the address of its `picture`; deleted accounts have none. Names are not
// stored, so they are current.
export async function readProfiles(ids) {
  const module = await identity;
  const profiles = await module?.players(ids).catch(() => []);
  return new Map(profiles?.map((each) => [each.id, { ...each, picture: module.pictureOf(each) }]));
}
