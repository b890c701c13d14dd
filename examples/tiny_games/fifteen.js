// Desert Fifteen: put the stones in order, with one free place. It does not ask who plays.

import { makeBoard, offer, say } from "./tiny.js";

const SIDE = 4;
const FREE = SIDE * SIDE; // the number of the stone that is not there
let [stones, moves] = [[], 0];

const cells = makeBoard(SIDE, SIDE, (place) => {
  if (!neighbours(stones.indexOf(FREE)).includes(place)) return;
  move(place);
  moves += 1;
  show();
});

function neighbours(place) {
  const sides = [place - SIDE, place + SIDE];
  if (place % SIDE) sides.push(place - 1);
  if ((place + 1) % SIDE) sides.push(place + 1);
  return sides.filter((each) => each >= 0 && each < FREE);
}

function move(place) {
  const free = stones.indexOf(FREE);
  [stones[free], stones[place]] = [stones[place], FREE];
}

function show() {
  for (const [place, stone] of stones.entries()) {
    cells[place].textContent = stone;
    cells[place].ariaLabel = null; // the number is the name
    cells[place].classList.toggle("gone", stone === FREE);
    cells[place].classList.toggle("lit", stone === place + 1);
  }
  const done = stones.every((stone, place) => stone === place + 1);
  say(done ? `Done, in ${moves} moves.` : `Put the stones in order. ${moves} moves so far.`);
}

function start() {
  [stones, moves] = [Array.from({ length: FREE }, (_, place) => place + 1), 0];
  for (let count = 0; count < 200; count += 1) {
    const places = neighbours(stones.indexOf(FREE)); // legal moves alone: half of all orders cannot be solved
    move(places[Math.floor(Math.random() * places.length)]);
  }
  show();
}

offer("New stones", start);
start();
