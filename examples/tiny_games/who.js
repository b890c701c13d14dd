// Who Is Who: find two of each face. The faces are players of the community, whose profiles are public; a player who
// signs in is among them. Beside the community's site a popup asks, on its play page that page does.

import { makeBoard, offer, say, shuffle } from "./tiny.js";

const { server, clientId } = document.body.dataset;
const { pictureOf, players, signIn } = await import(`${server}/static/v1/identity.js`);
const [PAIRS, FIRST_IDS] = [8, Array.from({ length: 100 }, (_, number) => number + 1)];
let [me, cards, open, found, turns] = [null, [], [], 0, 0];

const cells = makeBoard(4, 4, (number) => {
  if (!cards[number] || open.includes(number) || cells[number].classList.contains("lit")) return;
  if (open.length === 2) open.splice(0).forEach((each) => cells[each].replaceChildren());
  open.push(number);
  const [picture, { name }] = [new Image(64, 64), cards[number]];
  [picture.src, picture.alt] = [pictureOf(cards[number]), name];
  cells[number].replaceChildren(picture);
  say(name);
  if (open.length === 2) compare(...open);
});

function compare(one, other) {
  turns += 1;
  if (cards[one] !== cards[other]) return;
  for (const each of open.splice(0)) cells[each].classList.add("lit");
  found += 1;
  if (found < cards.length / 2) return;
  say(`You know everybody, after ${turns} turns${me ? `, ${me.name}` : ""}.`);
  offer("Play again", start);
}

async function start() {
  const others = shuffle(await players(FIRST_IDS)).filter(({ id, suspended }) => id !== me?.id && !suspended);
  const faces = [...(me ? [me] : []), ...others].slice(0, PAIRS);
  [cards, open, found, turns] = [shuffle([...faces, ...faces]), [], 0, 0];
  for (const cell of cells) [cell.className] = ["", cell.replaceChildren()];
  say(me ? `Hello, ${me.name}! You are one of these faces.` : "Find two of each face.");
  if (me) offer("", null);
  else offer("Sign in to be one of the faces", join);
}

async function join() {
  try {
    me = await signIn({ clientId, mode: "popup" });
    await start();
  } catch (error) {
    say(error.message); // a sentence for the player
  }
}

start();
