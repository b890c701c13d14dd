// One flight: a minute of stars to catch and rocks to avoid, on a canvas that fills the window.
// Lengths are in units of the space, which is always 640 of them high or 340 wide.

const SECONDS = 60;
const HEIGHT = 640;
const WIDTH = { least: 340, most: 720 }; // in a wider space the stars would be too far apart
const SHIP = 16; // radius
const KEY_SPEED = 430; // a second
const POINTER_SPEED = 1100;
const LONGEST_CHAIN = 5; // stars in a row that still raise the value of the next one
const ROCK_COSTS = 5; // points
const DAZED = 1.6; // seconds after a rock, in which no other one counts
const KEYS = {
  ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1],
  KeyA: [-1, 0], KeyD: [1, 0], KeyW: [0, -1], KeyS: [0, 1],
};
const TURN = 2 * Math.PI;
const still = matchMedia("(prefers-reduced-motion: reduce)");

const between = (low, high) => low + Math.random() * (high - low);
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

export class Flight {
  pilot = null; // an image, shown in the ship's window
  flying = false;
  paused = false;
  points = 0;

  constructor(canvas, end) {
    this.canvas = canvas;
    this.pen = canvas.getContext("2d");
    this.end = end;
    this.sky = Array.from({ length: 140 }, () => ({ x: Math.random(), y: Math.random(), depth: between(0.15, 1) }));
    this.held = new Set(); // keys
    this.reset();
    this.resize();
    window.addEventListener("resize", () => this.resize());
    window.addEventListener("keydown", (event) => this.pressKey(event));
    window.addEventListener("keyup", ({ code }) => this.held.delete(code));
    canvas.addEventListener("pointerdown", (event) => this.startDrag(event));
    canvas.addEventListener("pointermove", (event) => this.steer(event));
    requestAnimationFrame((now) => this.tick(now, now));
  }

  reset() {
    Object.assign(this, { points: 0, chain: 0, left: SECONDS, dazed: 0, nextStar: 0, nextRock: 2 });
    Object.assign(this, { stars: [], rocks: [], sparks: [], target: null, drag: null });
    this.held.clear();
  }

  start() {
    this.reset();
    this.ship = { x: this.width / 2, y: this.height - 90, lean: 0 };
    this.flying = true;
    this.paused = false;
  }

  pause() {
    this.flying = false;
    this.paused = true;
    this.held.clear();
  }

  goOn() {
    this.flying = true;
    this.paused = false;
    this.target = null;
  }

  // -- window size and input ------------------------------------------------------------------

  resize() {
    const { clientWidth, clientHeight } = document.documentElement;
    const ratio = window.devicePixelRatio;
    this.canvas.width = clientWidth * ratio;
    this.canvas.height = clientHeight * ratio;
    this.scale = Math.min(clientHeight / HEIGHT, clientWidth / WIDTH.least); // CSS pixels a unit
    this.width = Math.min(clientWidth / this.scale, WIDTH.most);
    this.height = clientHeight / this.scale;
    this.margin = (clientWidth / this.scale - this.width) / 2; // on each side of the space
    this.ship = { x: this.width / 2, y: this.height - 90, lean: 0, ...this.ship };
    this.keepInside();
  }

  keepInside() {
    this.ship.x = clamp(this.ship.x, SHIP, this.width - SHIP);
    this.ship.y = clamp(this.ship.y, SHIP, this.height - SHIP);
  }

  pressKey(event) {
    if (!this.flying || !(event.code in KEYS)) return;
    event.preventDefault(); // the page would scroll
    this.held.add(event.code);
    this.target = null;
  }

  startDrag({ pointerId, clientX, clientY }) {
    this.canvas.setPointerCapture(pointerId);
    this.drag = { x: clientX / this.scale - this.ship.x, y: clientY / this.scale - this.ship.y };
  }

  // The ship follows the mouse; a finger drags it from a distance, so as not to cover it.
  steer({ pointerType, clientX, clientY }) {
    if (!this.flying) return;
    const from = pointerType === "mouse" || !this.drag ? { x: this.margin, y: 0 } : this.drag;
    this.target = { x: clientX / this.scale - from.x, y: clientY / this.scale - from.y };
  }

  // -- simulation -------------------------------------------------------------------------------

  tick(now, before) {
    const seconds = Math.min((now - before) / 1000, 0.05); // no jump after a slow frame
    if (this.flying) this.fly(seconds);
    this.draw(this.paused || still.matches ? 0 : seconds);
    requestAnimationFrame((next) => this.tick(next, now));
  }

  fly(seconds) {
    this.left -= seconds;
    this.dazed -= seconds;
    this.moveShip(seconds);
    this.addThings(seconds);
    for (const thing of [...this.stars, ...this.rocks, ...this.sparks]) {
      thing.x += thing.across * seconds;
      thing.y += thing.down * seconds;
      thing.angle += thing.spin * seconds;
      thing.life -= seconds;
    }
    this.stars = this.stars.filter((star) => !this.catchStar(star) && star.y < this.height + 20);
    this.rocks = this.rocks.filter((rock) => !this.hitRock(rock) && rock.y < this.height + 40);
    this.sparks = this.sparks.filter((spark) => spark.life > 0);
    if (this.left > 0) return;
    this.flying = false;
    this.end(this.points);
  }

  moveShip(seconds) {
    const { ship, target } = this;
    let [x, y] = [0, 0];
    for (const code of this.held) [x, y] = [x + KEYS[code][0], y + KEYS[code][1]];
    let step = KEY_SPEED * seconds;
    if (target) {
      [x, y] = [target.x - ship.x, target.y - ship.y];
      step = Math.min(POINTER_SPEED * seconds, Math.hypot(x, y));
    }
    const length = Math.hypot(x, y) || 1;
    const before = ship.x;
    ship.x += (x / length) * step;
    ship.y += (y / length) * step;
    this.keepInside();
    ship.lean += (clamp((ship.x - before) / (seconds || 1) / 900, -0.5, 0.5) - ship.lean) * 0.2;
  }

  addThings(seconds) {
    const hurry = 1 + (1 - this.left / SECONDS) * 0.9; // everything gets faster
    const place = () => ({ x: between(20, this.width - 20), y: -30, angle: between(0, TURN), life: Infinity });
    this.nextStar -= seconds * hurry;
    this.nextRock -= seconds * hurry;
    if (this.nextStar <= 0) {
      this.stars.push({ ...place(), across: between(-15, 15), down: between(130, 190) * hurry, spin: 1.5, size: 11 });
      this.nextStar = between(0.45, 0.8);
    }
    if (this.nextRock <= 0) {
      const size = between(14, 30);
      const outline = Array.from({ length: 9 }, () => between(0.75, 1.1));
      const speed = { across: between(-40, 40), down: between(150, 240) * hurry, spin: between(-2, 2) };
      this.rocks.push({ ...place(), ...speed, size, outline });
      this.nextRock = between(0.6, 1.1);
    }
  }

  touches({ x, y, size }) {
    return Math.hypot(x - this.ship.x, y - this.ship.y) < size + SHIP * 0.8;
  }

  catchStar(star) {
    if (!this.touches({ ...star, size: star.size + 8 })) return false; // a larger target
    this.chain = Math.min(this.chain + 1, LONGEST_CHAIN);
    this.points += this.chain;
    this.burst(star, "#ffe28a", `+${this.chain}`);
    return true;
  }

  hitRock(rock) {
    if (this.dazed > 0 || !this.touches(rock)) return false;
    const lost = Math.min(ROCK_COSTS, this.points);
    this.points -= lost;
    this.chain = 0;
    this.dazed = DAZED;
    this.burst(rock, "#c9a48c", lost ? `-${lost}` : "");
    return true;
  }

  burst({ x, y }, colour, text) {
    const piece = { x, y, colour, angle: 0, spin: 0 };
    for (let count = still.matches ? 0 : 10; count > 0; count -= 1) {
      this.sparks.push({ ...piece, across: between(-140, 140), down: between(-140, 140), life: between(0.2, 0.6) });
    }
    this.sparks.push({ ...piece, text, across: 0, down: -50, life: 0.8 });
  }

  // -- drawing ----------------------------------------------------------------------------------

  draw(seconds) {
    const { pen } = this;
    const scale = this.scale * window.devicePixelRatio;
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    this.drawSky(seconds);
    pen.translate(this.margin, 0);
    this.stars.forEach((star) => this.drawStar(star));
    this.rocks.forEach((rock) => this.drawRock(rock));
    if (this.flying || this.paused) this.drawShip();
    this.sparks.forEach((spark) => this.drawSpark(spark));
    if (this.flying || this.paused) this.drawInstruments();
  }

  drawSky(seconds) {
    const { pen, height } = this;
    const width = this.width + 2 * this.margin;
    const dusk = pen.createLinearGradient(0, 0, 0, height);
    dusk.addColorStop(0, "#0b1026");
    dusk.addColorStop(0.7, "#1d1b45");
    dusk.addColorStop(1, "#3a2458");
    pen.fillStyle = dusk;
    pen.fillRect(0, 0, width, height);
    pen.fillStyle = "#cfd8ff";
    for (const dot of this.sky) {
      dot.y = (dot.y + (dot.depth * seconds) / (this.flying ? 5 : 20)) % 1;
      pen.globalAlpha = dot.depth * 0.7;
      pen.fillRect(dot.x * width, dot.y * height, dot.depth * 2.2, dot.depth * (this.flying ? 5 : 2.2));
    }
    pen.globalAlpha = 1;
  }

  // A closed polygon around a place, with `radius(corner)` for each corner.
  outline({ x, y, angle }, corners, radius) {
    this.pen.beginPath();
    for (let corner = 0; corner < corners; corner += 1) {
      const direction = angle + (corner / corners) * TURN;
      this.pen.lineTo(x + Math.cos(direction) * radius(corner), y + Math.sin(direction) * radius(corner));
    }
    this.pen.closePath();
  }

  drawStar(star) {
    const { pen } = this;
    const glow = pen.createRadialGradient(star.x, star.y, 2, star.x, star.y, star.size * 2.2);
    glow.addColorStop(0, "#ffe28a88");
    glow.addColorStop(1, "#ffe28a00");
    pen.fillStyle = glow;
    pen.fillRect(star.x - 26, star.y - 26, 52, 52);
    this.outline(star, 10, (corner) => (corner % 2 ? star.size * 0.45 : star.size));
    pen.fillStyle = "#ffe28a";
    pen.fill();
  }

  drawRock(rock) {
    const { pen } = this;
    this.outline(rock, rock.outline.length, (corner) => rock.outline[corner] * rock.size);
    pen.fillStyle = "#6d5a66";
    pen.fill();
    pen.strokeStyle = "#a58b8f";
    pen.lineWidth = 2;
    pen.stroke();
  }

  drawShip() {
    const { pen, ship } = this;
    if (this.dazed > 0 && Math.floor(this.dazed * 8) % 2) return;
    pen.save();
    pen.translate(ship.x, ship.y);
    pen.rotate(ship.lean);
    const flame = still.matches ? 12 : between(8, 16);
    for (const [colour, path] of [
      ["#ff9d57", `M-6 14 L0 ${18 + flame} L6 14 Z`],
      ["#d64a4a", "M-9 2 L-21 18 L-8 14 Z M9 2 L21 18 L8 14 Z"],
      ["#eef1fb", "M0 -26 C10 -15 12 2 8 15 L-8 15 C-12 2 -10 -15 0 -26 Z"],
    ]) {
      pen.fillStyle = colour;
      pen.fill(new Path2D(path));
    }
    pen.beginPath();
    pen.arc(0, -4, 7, 0, TURN);
    pen.fillStyle = "#35507e";
    pen.fill();
    if (this.pilot?.complete && this.pilot.naturalWidth) {
      pen.clip();
      pen.drawImage(this.pilot, -7, -11, 14, 14);
    }
    pen.restore();
  }

  drawSpark({ x, y, colour, text, life }) {
    const { pen } = this;
    pen.globalAlpha = clamp(life * 2, 0, 1);
    if (text === undefined) {
      pen.fillStyle = colour;
      pen.fillRect(x - 2, y - 2, 4, 4);
    } else this.write(text, x, y, "center", colour);
    pen.globalAlpha = 1;
  }

  drawInstruments() {
    this.write(this.points, 14, 30, "left", "#eef1fb");
    if (this.chain > 1) this.write(`\u00d7${this.chain}`, this.width / 2, 30, "center", "#ffe28a");
    this.write(Math.ceil(Math.max(this.left, 0)), this.width - 14, 30, "right", "#eef1fb");
  }

  write(text, x, y, align, colour) {
    this.pen.font = "700 20px system-ui, sans-serif";
    this.pen.textAlign = align;
    this.pen.fillStyle = colour;
    this.pen.fillText(text, x, y);
  }
}
