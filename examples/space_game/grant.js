// Who plays? The page around the game asks the player, and gives the game a code; the game's own
// server exchanges the code, and gives this page a token. The token stays in this module.

export const { server, clientId } = document.body.dataset;

const REFUSALS = {
  no_account: "You are not signed in. Sign in, in the bar above the game, to keep your scores.",
  access_denied: "You play as a guest: you did not allow the game to know you. Load the page again to be asked again.",
  already_requested: "You were asked already. Load the whole page again to be asked again.",
  invalid_app: "This game is not the one that this page is for. Tell whoever runs it.",
  invalid_scopes: "This game asked for more than a game may know. Tell whoever runs it.",
  server_error: "The identity server has a problem. Load the page again in a while.",
};

let token = null;

// The signed-in player's id. Throws an Error that says in words why there is none.
export async function signIn() {
  const answer = await askThePage();
  if (answer.error) throw new Error(REFUSALS[answer.message] ?? `The page refused: ${answer.message}`);
  const player = await post("/sign-in", { code: answer.code });
  token = player.token;
  return player.id;
}

function askThePage() {
  if (window.parent === window) {
    throw new Error("You play as a guest. Open the game from the community's site to keep your scores.");
  }
  return new Promise((resolve) => {
    window.addEventListener("message", function take({ data, origin, source }) {
      // Any window can send messages here; a code from another one would be somebody else's.
      if (origin !== server || source !== window.parent || data?.type !== "authorized") return;
      window.removeEventListener("message", take);
      resolve(data);
    });
    // Never "*": the address says who may read this.
    window.top.postMessage({ action: "authorize", client_id: clientId, scopes: ["userinfo"] }, server);
  });
}

// The new list of scores. Throws an Error with the reason.
export async function sendScore(score) {
  return post("/scores", { score }, { Authorization: `Bearer ${token}` });
}

async function post(path, values, headers = {}) {
  const body = JSON.stringify(values);
  const answer = await fetch(path, { method: "POST", body, headers }).catch(() => null);
  if (!answer) throw new Error("The game's own server cannot be reached.");
  const received = await answer.json();
  if (!answer.ok) throw new Error(`That did not work: ${received.message}.`);
  return received;
}

// Anyone may ask for a public profile: nobody's name is kept here, so none is ever out of date.
export async function readProfile(id) {
  const answer = await fetch(`${server}/api/users/info?id=${id}`).catch(() => null);
  return answer?.ok ? (await answer.json()).user : null; // null too where the account was deleted
}

export function pictureAddress({ id, pfpTimestamp }) {
  return `${server}/pfp/medium/${id}${pfpTimestamp ? `-${pfpTimestamp}` : ""}.webp`;
}
