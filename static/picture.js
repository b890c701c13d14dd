// The account page shows the square that will be kept of a chosen picture, before it is uploaded.
// Without this script the form works all the same.
"use strict";

const LIMIT = 8 * 1024 * 1024; // bytes, as the server's

const field = document.getElementById("picture");
const portrait = document.getElementById("portrait"); // the picture of now
const preview = document.createElement("canvas");
preview.className = portrait.className;
preview.width = portrait.width;
preview.height = portrait.height;
preview.setAttribute("role", "img");
preview.setAttribute("aria-label", "Preview of your picture, not saved yet");

async function showChosen() {
  const file = field.files[0];
  const tooLarge = file !== undefined && file.size > LIMIT;
  // The browser says this when the form is sent, to screen readers too.
  field.setCustomValidity(tooLarge ? "This file is larger than 8 MB. Choose a smaller one." : "");
  let bitmap = null;
  if (file && !tooLarge) {
    // As the server does it: turned as EXIF says, and the first frame of an animation.
    // What this browser cannot read is no error here: the server says what is wrong.
    bitmap = await createImageBitmap(file, { imageOrientation: "from-image" }).catch(() => null);
  }
  if (file !== field.files[0]) return; // another was chosen meanwhile
  if (bitmap) drawSquare(bitmap);
  const [shown, hidden] = bitmap ? [preview, portrait] : [portrait, preview];
  if (hidden.isConnected) hidden.replaceWith(shown);
}

function drawSquare(bitmap) {
  const side = Math.min(bitmap.width, bitmap.height);
  const left = (bitmap.width - side) / 2;
  const top = (bitmap.height - side) / 2;
  const pen = preview.getContext("2d");
  pen.imageSmoothingQuality = "high";
  pen.clearRect(0, 0, preview.width, preview.height);
  pen.drawImage(bitmap, left, top, side, side, 0, 0, preview.width, preview.height);
  bitmap.close();
}

field.addEventListener("change", showChosen);
showChosen(); // some browsers keep the choice when the page is loaded again
