// The part of a chosen picture that will be kept is chosen in the page: it is moved and zoomed in a preview, and that part
// alone is sent. The attribute data-crop of the field is the selector of the picture of now, whose shape the part has.
// Without this script, or where it cannot, the whole file is sent and the server keeps its middle.
"use strict";

const pictureWords = document.currentScript.dataset;
const LIMIT = 8 * 1024 * 1024; // bytes, as the server's
const DENSITY = 4; // pixels of what is sent, at most, for each that the picture of now is wide
const MOST_ZOOM = 4;
const STEP = 1 / 20; // of the part: what an arrow key moves

const field = document.querySelector("[data-crop]");
const current = document.querySelector(field.dataset.crop);
const usualWidth = current.getAttribute("width");
const ratio = usualWidth / current.getAttribute("height");
const preview = document.createElement("canvas");
preview.className = current.className;
preview.width = current.width;
preview.height = preview.width / ratio;
preview.tabIndex = 0;
preview.setAttribute("role", "application"); // screen readers pass on the arrow keys
preview.setAttribute("aria-label", pictureWords.preview);
preview.setAttribute("aria-describedby", "crop-hint");

const controls = document.createElement("div");
controls.innerHTML = `
  <label for="zoom"></label>
  <input id="zoom" type="range" min="1" max="${MOST_ZOOM}" step="0.05">
  <p class="small" id="crop-hint"></p>`;
controls.querySelector("label").textContent = pictureWords.zoom;
controls.querySelector("p").textContent = pictureWords.hint;
const zoom = controls.querySelector("input");

let bitmap = null; // the chosen picture
let x, y; // the middle of the part in it, in pixels

const width = () => Math.min(bitmap.width, bitmap.height * ratio) / zoom.value;
const height = () => width() / ratio;

function draw(canvas) {
  const pen = canvas.getContext("2d");
  pen.imageSmoothingQuality = "high";
  pen.clearRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(bitmap, x - width() / 2, y - height() / 2, width(), height(), 0, 0, canvas.width, canvas.height);
}

// Moves the part, by fractions of its sides, as far as the picture goes.
function move(right, down) {
  const keep = (middle, side, length) => Math.min(Math.max(middle, side / 2), length - side / 2);
  x = keep(x + right * width(), width(), bitmap.width);
  y = keep(y + down * height(), height(), bitmap.height);
  draw(preview);
}

async function showChosen() {
  const file = field.files[0];
  const tooLarge = file !== undefined && file.size > LIMIT;
  // The browser says this when the form is sent, to screen readers too.
  field.setCustomValidity(tooLarge ? pictureWords.tooLarge : "");
  let read = null;
  if (file && !tooLarge && drawsTruly()) {
    // As the server does it: turned as EXIF says, and the first frame of an animation.
    // What this browser cannot read is no error here: the server says what is wrong.
    read = await createImageBitmap(file, { imageOrientation: "from-image" }).catch(() => null);
  }
  if (file !== field.files[0]) return read?.close(); // another was chosen meanwhile
  bitmap?.close();
  bitmap = read;
  const [shown, hidden] = bitmap ? [preview, current] : [current, preview];
  if (hidden.isConnected) hidden.replaceWith(shown);
  controls.remove();
  if (!bitmap) return;
  document.getElementById(`${field.id}-hint`).after(controls);
  zoom.value = 1;
  [x, y] = [bitmap.width / 2, bitmap.height / 2];
  draw(preview);
}

// Browsers that hide which machine they run on change what is read from a canvas: some to noise.
function drawsTruly() {
  const pen = document.createElement("canvas").getContext("2d");
  pen.fillStyle = "#4080c0";
  pen.fillRect(0, 0, 16, 16);
  const colour = [0x40, 0x80, 0xc0, 0xff];
  return pen.getImageData(0, 0, 16, 16).data.every((value, i) => Math.abs(value - colour[i % 4]) < 3);
}

field.addEventListener("change", showChosen);
showChosen(); // some browsers keep the choice when the page is loaded again

// -- moving and zooming -----------------------------------------------------------------------------

const ARROWS = { ArrowLeft: [-STEP, 0], ArrowRight: [STEP, 0], ArrowUp: [0, -STEP], ArrowDown: [0, STEP] };

zoom.addEventListener("input", () => move(0, 0));
preview.addEventListener("keydown", (event) => {
  if (!(event.key in ARROWS) || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault(); // the page does not scroll
  move(...ARROWS[event.key]);
});
let dragged = null; // where the pointer was
preview.addEventListener("pointerdown", (event) => {
  preview.setPointerCapture(event.pointerId);
  dragged = event;
});
preview.addEventListener("pointermove", (event) => {
  if (event.pointerId !== dragged?.pointerId) return;
  move((dragged.x - event.x) / preview.clientWidth, (dragged.y - event.y) / preview.clientHeight);
  dragged = event;
});
for (const end of ["pointerup", "pointercancel"]) preview.addEventListener(end, () => (dragged = null));

// -- sending ----------------------------------------------------------------------------------------

let isReady = false; // the form is being sent with the part
let isDrawing = false;

field.form.addEventListener("submit", async (event) => {
  if (isReady || !bitmap) return;
  event.preventDefault();
  if (isDrawing) return; // pressed twice
  isDrawing = true;
  const part = document.createElement("canvas");
  part.width = Math.min(DENSITY * usualWidth, Math.ceil(width()));
  part.height = part.width / ratio;
  draw(part);
  const content = await new Promise((resolve) => part.toBlob(resolve));
  if (content) {
    const files = new DataTransfer();
    files.items.add(new File([content], "picture.png", { type: "image/png" }));
    field.files = files.files;
  }
  isDrawing = false;
  isReady = true;
  event.target.requestSubmit(event.submitter);
  isReady = false;
});
