// Secret Garden: players plant flowers together. The garden's server lets in who brings a ticket: this page gets one
// from the community's site, for that server and one nonce of it, and never shows it the access token.

import { makeBoard, offer, say } from "./tiny.js";

const { server, clientId } = document.body.dataset;
const { needsClick, players, signIn, ticket } = await import(`${server}/static/v1/identity.js`);
let token = null; // of garden.py

const plots = makeBoard(12, 8, async (number) => {
  if (!token) return say("Sign in to plant something.");
  await show(await post("/plant", { token, plot: String(number) }).catch(({ message }) => say(message)));
});

async function post(path, values = {}) {
  const response = await fetch(path, { method: "POST", body: JSON.stringify(values) });
  const received = await response.json();
  if (!response.ok) throw new Error(`That did not work: ${received.message}.`);
  return received;
}

async function enter() {
  try {
    const { name } = await signIn({ clientId, scope: "userinfo join", mode: "popup" });
    const { nonce } = await post("/nonce");
    ({ token } = await post("/enter", { nonce, ticket: await ticket(location.host, nonce) }));
    say(`Welcome, ${name}! Press a plot to plant your flower.`);
    offer("", null);
  } catch ({ message }) {
    say(message);
    offer("Come in", enter);
  }
}

async function show(planted) {
  if (!planted) return;
  const profiles = await players([...new Set(Object.values(planted))]);
  const names = new Map(profiles.map(({ id, name }) => [id, name]));
  for (const [plot, id] of Object.entries(planted)) {
    plots[plot].className = "planted";
    plots[plot].style.setProperty("--hue", (id * 137) % 360);
    plots[plot].title = `Planted by ${names.get(id) ?? "somebody who has left"}`;
  }
}

const look = () => fetch("/plots").then((response) => response.json()).then(show).catch(() => {});

say("The garden of all players. Come in to plant a flower.");
offer("Come in", enter);
look();
setInterval(look, 3000); // others plant, too
if (!(await needsClick())) enter();
