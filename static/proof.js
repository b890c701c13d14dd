// The sign-up form brings the solutions of puzzles (proof-worker.js). The work begins with the page, and a press of the
// button waits for it. Whoever has no patience, or a browser without workers, can wait for a moderator.
"use strict";

const { worker: workerAddress, wait: waitWords, ...puzzles } = document.currentScript.dataset;
const PATIENCE = 10_000; // milliseconds

const nonces = document.querySelector('[name="nonces"]');
const status = document.createElement("p");
status.className = "wait";
status.setAttribute("role", "status");
nonces.form.append(status);
let pressed; // the button

nonces.form.addEventListener("submit", (event) => {
  if (nonces.value || event.submitter?.name === "wait") return;
  event.preventDefault();
  pressed = event.submitter;
  status.textContent = waitWords;
});

const offerToWait = () => nonces.form.querySelector("[data-slow]")?.removeAttribute("hidden");
const patience = setTimeout(offerToWait, PATIENCE);
const worker = new Worker(workerAddress);
worker.addEventListener("error", offerToWait);
worker.addEventListener("message", ({ data }) => {
  clearTimeout(patience);
  nonces.value = data;
  if (pressed) nonces.form.requestSubmit(pressed);
});
worker.postMessage(puzzles);
