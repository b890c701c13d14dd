// The panel around a flight: the player, the score list, and start, pause and end of a flight.

import { joinChat } from "./chat.js";
import { needsClick, readProfiles, sendScore, signIn } from "./grant.js";
import { Flight } from "./flight.js";

const [panel, title, message, play, player, signInButton, list, scores] = [
  "panel", "title", "message", "play", "player", "sign-in", "list", "scores",
].map((id) => document.getElementById(id));

let playerId = null;
const flight = new Flight(document.getElementById("space"), end);

function show(heading, text, button) {
  title.textContent = heading;
  message.textContent = text;
  play.textContent = button;
  panel.hidden = false;
  play.focus();
}

play.addEventListener("click", () => {
  panel.hidden = true;
  if (flight.paused) flight.goOn();
  else flight.start();
});

function pause() {
  if (!flight.flying) return;
  flight.pause();
  show("Paused", `${flight.points} points so far.`, "Go on");
}

document.addEventListener("visibilitychange", () => document.hidden && pause());
window.addEventListener("blur", pause);
window.addEventListener("keydown", ({ key }) => (key === "p" || key === "P" || key === "Escape") && pause());

async function end(points) {
  show(`${points} points`, points > 300 ? "The stars will talk about you." : "The stars are still there.", "Fly again");
  if (playerId === null) return;
  try {
    await showScores(sendScore(points));
  } catch (error) {
    player.textContent = error.message;
  }
}

let lists = 0; // requested lists: only the last one is shown

async function showScores(request) {
  lists += 1;
  const number = lists;
  const best = await request;
  const profiles = await readProfiles(best.map(({ id }) => id));
  if (number !== lists) return;
  const known = best.filter(({ id }) => profiles.has(id)); // deleted accounts are left out
  scores.replaceChildren(...known.map(({ id, score }) => scoreRow(profiles.get(id), score)));
  list.hidden = scores.children.length === 0;
}

function scoreRow(profile, score) {
  const row = document.createElement("li");
  row.append(picture(profile), name(profile), String(score));
  if (profile.id === playerId) row.setAttribute("aria-current", "true");
  return row;
}

function name(profile) {
  const element = document.createElement("bdi");
  element.textContent = profile.name;
  return element;
}

function picture(profile) {
  const image = new Image(24, 24);
  image.crossOrigin = "anonymous"; // a canvas with this picture stays readable
  image.src = profile.picture;
  image.alt = "";
  return image;
}

async function greet() {
  try {
    playerId = await signIn(); // waits until the player has answered
    const profile = (await readProfiles([playerId])).get(playerId);
    flight.pilot = picture(profile);
    player.replaceChildren("You fly as ", picture(profile), name(profile));
    signInButton.hidden = true;
    joinChat();
  } catch (error) {
    player.textContent = error.message;
  }
  if (!panel.hidden) play.focus(); // the question took the focus
  showBest(); // with the player's own row
}

function offerSignIn() {
  player.textContent = "You play as a guest.";
  signInButton.hidden = false;
  signInButton.addEventListener("click", greet);
}

async function showBest() {
  await showScores(fetch("/scores").then((response) => response.json()));
}

// A guest signs in beside the game, on the community's site.
window.addEventListener("message", ({ data, source, origin }) => {
  if (source === window.top && origin === document.body.dataset.server && data?.type === "signed_in") greet();
});

play.focus();
showBest();
if (await needsClick()) offerSignIn();
else greet();
