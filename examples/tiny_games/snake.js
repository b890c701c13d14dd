// Snake Island: steer with the arrow keys, or press where the snake shall go. It does not ask who plays.

import { makeBoard, offer, say } from "./tiny.js";

const SIDE = 13;
const KEYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
let [snake, way, food, timer] = [[], [1, 0], 0, 0]; // the head is first

const cells = makeBoard(SIDE, SIDE, (number) => {
  const [x, y] = [(number % SIDE) - (snake[0] % SIDE), Math.floor(number / SIDE) - Math.floor(snake[0] / SIDE)];
  turn(Math.abs(x) > Math.abs(y) ? [Math.sign(x), 0] : [0, Math.sign(y)]);
});
for (const cell of cells) cell.tabIndex = -1; // the keys steer

function turn(to) {
  if (snake[1] !== next(to)) way = to; // not back into itself
}

function next([x, y]) {
  const [column, row] = [(snake[0] % SIDE) + x, Math.floor(snake[0] / SIDE) + y];
  return [column, row].every((each) => each >= 0 && each < SIDE) ? row * SIDE + column : null;
}

function step() {
  const head = next(way);
  if (head === null || snake.includes(head)) {
    clearInterval(timer);
    say(`${snake.length - 3} fruits. The island remembers.`);
    return offer("Again", start);
  }
  snake.unshift(head);
  if (head === food) drop();
  else snake.pop();
  for (const [number, cell] of cells.entries()) {
    cell.className = snake.includes(number) ? "lit" : number === food ? "food" : "";
  }
}

function drop() {
  const empty = [...cells.keys()].filter((each) => !snake.includes(each));
  food = empty[Math.floor(Math.random() * empty.length)];
}

function start() {
  const middle = Math.floor((SIDE * SIDE) / 2);
  [snake, way] = [[middle, middle - 1, middle - 2], [1, 0]];
  drop();
  say("Fruits make the snake longer. It must not bite itself.");
  offer("", null);
  timer = setInterval(step, 180);
}

addEventListener("keydown", (event) => {
  if (!(event.key in KEYS)) return;
  event.preventDefault();
  turn(KEYS[event.key]);
});
say("Steer with the arrow keys, or press where the snake shall go.");
offer("Start", start);
