// City Lights: a press changes a window and its neighbours; the aim is a dark house. It does not ask who plays.

import { makeBoard, offer, say } from "./tiny.js";

const SIDE = 5;
let presses = 0;

const windows = makeBoard(SIDE, SIDE, (number) => {
  change(number);
  presses += 1;
  const lit = windows.filter((each) => each.ariaPressed === "true").length;
  say(lit ? `${lit} windows are lit.` : `The city sleeps, after ${presses} presses.`);
});

function change(number) {
  const [column, row] = [number % SIDE, Math.floor(number / SIDE)];
  for (const [x, y] of [[column, row], [column - 1, row], [column + 1, row], [column, row - 1], [column, row + 1]]) {
    if (x < 0 || x >= SIDE || y < 0 || y >= SIDE) continue;
    const each = windows[y * SIDE + x];
    each.ariaPressed = String(each.classList.toggle("lit"));
  }
}

function start() {
  presses = 0;
  for (const each of windows) if (each.classList.contains("lit")) each.classList.remove("lit"), (each.ariaPressed = "false");
  for (let number = 0; number < SIDE * SIDE; number += 1) if (Math.random() < 0.4) change(number);
  say("Turn off all lights. Each press changes the windows beside it, too.");
}

offer("New city", start);
start();
