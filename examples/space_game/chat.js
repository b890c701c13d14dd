// The chat: a game server of its own, which admits players with a ticket. The game's own server gets that from the
// community's site, for one connection; the chat never sees an access token.

import { getTicket } from "./grant.js";

const { chat } = document.body.dataset;
const SHOWN = 50; // messages
const [section, said, problem, form, text] = [
  "chat", "said", "chat-problem", "say", "text",
].map((id) => document.getElementById(id));
let connection = null;

export function joinChat() {
  if (!chat || connection) return;
  connection = new WebSocket(`ws://${chat}/`);
  connection.onmessage = ({ data }) => {
    connection.onmessage = ({ data }) => show(JSON.parse(data));
    getTicket(data).then((ticket) => connection?.send(ticket), leave); // the first message is a nonce
  };
  connection.onclose = ({ reason }) => leave(Error(reason || "The connection has ended"));
}

function show({ name, text }) {
  const [row, speaker] = [document.createElement("p"), document.createElement("bdi")];
  speaker.textContent = name;
  row.append(speaker, ` ${text}`);
  said.append(row);
  while (said.children.length > SHOWN) said.firstElementChild.remove();
  said.scrollTop = said.scrollHeight;
  [said.hidden, form.hidden, problem.textContent] = [false, false, ""]; // only who is inside gets messages
}

function leave({ message }) {
  connection?.close();
  connection = null;
  form.hidden = true;
  problem.textContent = `You can't chat now: ${message}. Load the page again to try again.`;
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (text.value.trim()) connection?.send(text.value);
  text.value = "";
});

section.hidden = !chat;
