// Mole Cave: press the moles before they hide. It does not ask who plays.

import { makeBoard, offer, say } from "./tiny.js";

const SECONDS = 20;
let [mole, caught] = [null, 0];

const holes = makeBoard(4, 3, (number) => {
  if (number !== mole) return;
  caught += 1;
  say(`${caught} caught`);
  show(null);
});

function show(number) {
  mole = number;
  for (const [each, hole] of holes.entries()) hole.classList.toggle("food", each === mole);
}

function start() {
  caught = 0;
  offer("", null);
  say("Press the moles.");
  const timer = setInterval(() => show(Math.floor(Math.random() * holes.length)), 800);
  setTimeout(() => {
    clearInterval(timer);
    show(null);
    say(`${caught} moles in ${SECONDS} seconds.`);
    offer("Again", start);
  }, SECONDS * 1000);
}

say("Twelve holes, one mole, twenty seconds.");
offer("Start", start);
