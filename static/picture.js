// The account page shows the square that would be kept of a chosen picture, before it is uploaded.
// Without this script the form works all the same.
"use strict";

const LIMIT = 8 * 1024 * 1024; // bytes, as the server's

const field = document.getElementById("picture");
const portrait = document.getElementById("portrait"); // the picture of now
const preview = document.createElement("canvas"); // not an <img>: of an animation the first frame counts
preview.id = portrait.id;
preview.className = portrait.className;
preview.width = portrait.width;
preview.height = portrait.height;
preview.setAttribute("role", "img");
preview.setAttribute("aria-label", "The picture that you chose, not uploaded yet");

function show(element) {
  document.getElementById("portrait").replaceWith(element);
}

function draw(image) {
  const { naturalWidth: width, naturalHeight: height } = image;
  const side = Math.min(width, height);
  const pen = preview.getContext("2d");
  pen.imageSmoothingQuality = "high";
  pen.clearRect(0, 0, preview.width, preview.height);
  pen.drawImage(image, (width - side) / 2, (height - side) / 2, side, side, 0, 0, preview.width, preview.height);
}

async function showChosen() {
  const file = field.files[0];
  const tooLarge = file && file.size > LIMIT;
  // The browser says this when the form is sent, beside the field and to screen readers.
  field.setCustomValidity(tooLarge ? "This file is larger than 8 MB. Choose a smaller one." : "");
  if (!file || tooLarge) {
    show(portrait);
    return;
  }
  const image = new Image();
  image.src = URL.createObjectURL(file);
  try {
    await image.decode();
  } catch {
    image.src = ""; // not a picture that this browser knows: the server says what is wrong
  }
  if (file === field.files[0]) { // and no other was chosen while this one was decoded
    if (image.src) draw(image);
    show(image.src ? preview : portrait);
  }
}

field.addEventListener("change", showChosen);
showChosen(); // some browsers keep the choice when the page is loaded again
